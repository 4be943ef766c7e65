// Sums of products of runs of rows: sums[slice][result] += sum_run partials[slice][run][result] in double, in a fixed
// order. blockIdx.y is the slice.

#include "complex.cuh"

template <class Real>
__global__ void __launch_bounds__(256)
    add_runs(const Complex<Real>* __restrict__ partials, double2* __restrict__ sums, int runs, int results) {
    const int result = blockIdx.x * blockDim.x + threadIdx.x;
    if (result >= results) return;
    const Complex<Real>* part = partials + size_t(blockIdx.y) * runs * results + result;
    double re = 0, im = 0;
    #pragma unroll 8
    for (int run = 0; run < runs; run++) {
        const Complex<Real> value = __ldcs(part + size_t(run) * results);
        re += value.x, im += value.y;
    }
    double2& sum = sums[size_t(blockIdx.y) * results + result];
    sum = {sum.x + re, sum.y + im};
}
