// What sums and updates of spinors in 16 bits have in common (half_spinors.cuh): a thread has the 24 numbers of one
// right-hand side of a site at a time, in single precision.

#include "half_spinors.cuh"
#include "share.cuh"

template <int N> using Halves = HalfSpinors<float, Lanes<N, 1, 1>>;
using Numbers = Spinor<float, 1>;

__device__ __forceinline__ float2 single(double2 a) { return {float(a.x), float(a.y)}; }

// y += a x
__device__ __forceinline__ void add(Numbers& y, float2 a, const Numbers& x) {
    #pragma unroll
    for (int c = 0; c < 12; c++) {
        float& re = y.re[c / 3][c % 3][0];
        float& im = y.im[c / 3][c % 3][0];
        const float xr = x.re[c / 3][c % 3][0], xi = x.im[c / 3][c % 3][0];
        re += a.x * xr, re -= a.y * xi;
        im += a.x * xi, im += a.y * xr;
    }
}

// Real and imaginary part of conj(x) y; the 24 products of a site do not need double, the sum over sites does.
__device__ __forceinline__ void add_dot(double* sum, const Numbers& x, const Numbers& y) {
    float re = 0, im = 0;
    #pragma unroll
    for (int c = 0; c < 12; c++) {
        const float xr = x.re[c / 3][c % 3][0], xi = x.im[c / 3][c % 3][0];
        const float yr = y.re[c / 3][c % 3][0], yi = y.im[c / 3][c % 3][0];
        re += xr * yr, re += xi * yi;
        im += xr * yi, im -= xi * yr;
    }
    sum[0] += re, sum[1] += im;
}

// body(site, right-hand side) for what this thread has: one right-hand side of every so many sites.
template <int N, int GROUPS, class Body> __device__ __forceinline__ void for_sites(long long sites, Body body) {
    const int n = threadIdx.x % N;
    for (long long site = first_row() + blockIdx.x * GROUPS + threadIdx.x / N; site < end_row(sites);
         site += gridDim.x * GROUPS)
        body(unsigned(site), n);
}
