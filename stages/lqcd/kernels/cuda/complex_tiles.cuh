// Products of tiles of complex matrices on tensor cores, 16 x 8 by 8 x 8, four real products each: in double as it is,
// in single precision each real product as three of tf32 numbers (`tensor_cores.cuh`, whose names of lanes hold in
// both precisions).

#include "tensor_cores.cuh"

// c += a b for a 16 x 8, b 8 x 8.
__device__ __forceinline__ void multiply_add(double (&c)[4], const double (&a)[4], const double (&b)[2]) {
#if __CUDA_ARCH__ >= 900
    asm("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+d"(c[0]), "+d"(c[1]), "+d"(c[2]), "+d"(c[3])
        : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(b[0]), "d"(b[1]));
#else
    #pragma unroll
    for (int i = 0; i < 4; i++)
        asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0,%1}, {%2}, {%3}, {%0,%1};"
            : "+d"(c[i % 2 * 2]), "+d"(c[i % 2 * 2 + 1])
            : "d"(a[i]), "d"(b[i / 2]));
#endif
}

// A real 16 x 8 or 8 x 8 matrix as the tensor cores take it.
template <class Real, int COUNT> struct Operand;
template <int COUNT> struct Operand<float, COUNT> : Parts<COUNT> {
    __device__ __forceinline__ explicit Operand(const float (&values)[COUNT]) : Parts<COUNT>(values) {}
};
template <int COUNT> struct Operand<double, COUNT> {
    double values[COUNT];

    __device__ __forceinline__ explicit Operand(const double (&from)[COUNT]) {
        #pragma unroll
        for (int i = 0; i < COUNT; i++) values[i] = from[i];
    }

    __device__ __forceinline__ Operand negative() const {
        Operand result = *this;
        #pragma unroll
        for (int i = 0; i < COUNT; i++)
            result.values[i] = __hiloint2double(__double2hiint(values[i]) ^ int(SIGN), __double2loint(values[i]));
        return result;
    }
};

template <class Real, int COUNT> struct ComplexOperand {
    Operand<Real, COUNT> re, im;

    __device__ __forceinline__ ComplexOperand(const Real (&re)[COUNT], const Real (&im)[COUNT]) : re(re), im(im) {}
};

__device__ __forceinline__ void multiply_add(double (&re)[4], double (&im)[4], const ComplexOperand<double, 4>& x,
                                             const ComplexOperand<double, 2>& y) {
    multiply_add(re, x.re.values, y.re.values);
    multiply_add(im, x.re.values, y.im.values);
    multiply_add(re, x.im.negative().values, y.im.values);
    multiply_add(im, x.im.values, y.re.values);
}

// Tensor cores cut sums off where an FMA rounds: they add up no more than these 8 terms, small ones first, and what
// follows is rounded.
__device__ __forceinline__ void multiply_add(float (&re)[4], float (&im)[4], const ComplexOperand<float, 4>& x,
                                             const ComplexOperand<float, 2>& y) {
    const Parts<4> minus = x.im.negative();
    float r[4] = {}, i[4] = {};
    multiply_add(r, x.re.lo, y.re.hi), multiply_add(i, x.re.lo, y.im.hi);
    multiply_add(r, x.re.hi, y.re.lo), multiply_add(i, x.re.hi, y.im.lo);
    multiply_add(r, minus.lo, y.im.hi), multiply_add(i, x.im.lo, y.re.hi);
    multiply_add(r, minus.hi, y.im.lo), multiply_add(i, x.im.hi, y.re.lo);
    multiply_add(r, x.re.hi, y.re.hi), multiply_add(i, x.re.hi, y.im.hi);
    multiply_add(r, minus.hi, y.im.hi), multiply_add(i, x.im.hi, y.re.hi);
    #pragma unroll
    for (int c = 0; c < 4; c++) re[c] += r[c], im[c] += i[c];
}
