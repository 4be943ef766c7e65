// U(3) matrices in nine numbers, as angles of rotations that are applied one after the other:
//
//   U = diag(1, l1, l2) R23 diag(1, 1, m) R13 R12 diag(f0, f1, f2)
//
// with phases f, m and l, and R_ij that turns components i and j: (u, v) -> (cos u + sin v, cos v - sin u), its angle
// between 0 and pi / 2. Every set of angles is a U(3) matrix, which moves no further than its angles do.

#include "color_vectors.cuh"

template <class Real> struct Turn {
    Real cosine, sine;
};

template <class Real> struct Rotations {
    Turn<Real> first[3], middle, last[2], in12, in13, in23;
};

// Parameters in their order: phases first, middle and last, then angles of R12, R13 and R23.
constexpr int PARAMETERS = 9, PHASES = 6;

template <class Real> __device__ __forceinline__ Turn<Real>& parameter(Rotations<Real>& u, int i) {
    return i < 3 ? u.first[i] : i == 3 ? u.middle : i < PHASES ? u.last[i - 4] : i == 6 ? u.in12 : i == 7 ? u.in13 : u.in23;
}

__device__ __forceinline__ float reciprocal(float x) { return __fdividef(1.0f, x); }

// Newton's method from 20 bits.
__device__ __forceinline__ double reciprocal(double x) {
    double inverse;
    asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(inverse) : "d"(x));
    #pragma unroll
    for (int i = 0; i < 2; i++) inverse = fma(inverse, fma(-x, inverse, 1.0), inverse);
    return inverse;
}

// The turn of which `t` is the tangent of half the angle.
template <class Real> __device__ __forceinline__ Turn<Real> turn_of(Real t) {
    const Real square = t * t, inverse = reciprocal(1 + square);
    return {(1 - square) * inverse, 2 * t * inverse};
}

// v times a phase
template <class Real, int R>
__device__ __forceinline__ void turn(const Turn<Real>& phase, Real (&re)[R], Real (&im)[R]) {
    #pragma unroll
    for (int r = 0; r < R; r++) {
        const Real x = re[r];
        re[r] = phase.cosine * x - phase.sine * im[r];
        im[r] = phase.cosine * im[r] + phase.sine * x;
    }
}

// sum += u v for each right-hand side
template <class Real, int R>
__device__ __forceinline__ void multiply_add(ColorVectors<Real, R>& sum, const Rotations<Real>& u, ColorVectors<Real, R> v) {
    #pragma unroll
    for (int j = 0; j < 3; j++) turn(u.first[j], v.re[j], v.im[j]);
    const auto mix = [](const Turn<Real>& by, Real& a, Real& b) {
        const Real x = a;
        a = by.cosine * x + by.sine * b;
        b = by.cosine * b - by.sine * x;
    };
    #pragma unroll
    for (int r = 0; r < R; r++) {
        mix(u.in12, v.re[0][r], v.re[1][r]), mix(u.in12, v.im[0][r], v.im[1][r]);
        mix(u.in13, v.re[0][r], v.re[2][r]), mix(u.in13, v.im[0][r], v.im[2][r]);
    }
    turn(u.middle, v.re[2], v.im[2]);
    #pragma unroll
    for (int r = 0; r < R; r++) mix(u.in23, v.re[1][r], v.re[2][r]), mix(u.in23, v.im[1][r], v.im[2][r]);
    #pragma unroll
    for (int r = 0; r < R; r++) {
        sum.re[0][r] += v.re[0][r], sum.im[0][r] += v.im[0][r];
        #pragma unroll
        for (int i = 1; i < 3; i++) {
            const Turn<Real>& phase = u.last[i - 1];
            sum.re[i][r] += phase.cosine * v.re[i][r];
            sum.re[i][r] -= phase.sine * v.im[i][r];
            sum.im[i][r] += phase.cosine * v.im[i][r];
            sum.im[i][r] += phase.sine * v.re[i][r];
        }
    }
}
