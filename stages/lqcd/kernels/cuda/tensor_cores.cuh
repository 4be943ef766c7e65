// Products of small matrices in single precision on tensor cores, each as three products of tf32 numbers: x = hi + lo
// with 11 bits each; hi hi + hi lo + lo hi leaves an error of single precision (Ootomo, Yokota, arXiv:2203.03341).
//
// A warp multiplies 16 x 8 by 8 x 8. With (g, t) = (lane / 4, lane % 4) a lane holds of A the elements (g, t),
// (g + 8, t), (g, t + 4), (g + 8, t + 4); of B (t, g), (t + 4, g); of C (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1).

constexpr int ROWS = 16, TERMS = 8, WARP = 32;
constexpr unsigned SIGN = 1u << 31;

// The 11 significant bits of a number that the tensor cores take.
__device__ __forceinline__ unsigned tf32(float x) {
    unsigned bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
    return bits;
}

// x = hi + lo in tf32.
__device__ __forceinline__ void split(float x, unsigned& hi, unsigned& lo) {
    hi = tf32(x), lo = tf32(x - __uint_as_float(hi));
}

// c += a b for a 16 x 8, b 8 x 8.
__device__ __forceinline__ void multiply_add(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// A real 16 x 8 (A) or 8 x 8 (B) matrix in two parts.
template <int N> struct Parts {
    unsigned hi[N], lo[N];

    __device__ __forceinline__ Parts() {}
    __device__ __forceinline__ explicit Parts(const float (&values)[N]) {
        #pragma unroll
        for (int i = 0; i < N; i++) split(values[i], hi[i], lo[i]);
    }

    __device__ __forceinline__ Parts negative() const {
        Parts result = *this;
        #pragma unroll
        for (int i = 0; i < N; i++) result.hi[i] ^= SIGN, result.lo[i] ^= SIGN;
        return result;
    }
};

__device__ __forceinline__ void multiply_add(float (&c)[4], const Parts<4>& a, const Parts<2>& b) {
    multiply_add(c, a.lo, b.hi);
    multiply_add(c, a.hi, b.lo);
    multiply_add(c, a.hi, b.hi);
}
