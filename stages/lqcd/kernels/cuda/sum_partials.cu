// Second stage of reductions to many numbers, matrices and currents: sums[i] = sum_p partials[p][i] in a fixed order.

#include "block_sum.cuh"
#include "device_sum.cuh"

__global__ void __launch_bounds__(1024) sum_partials(const double* partials, double* sums, int parts, int count) {
    constexpr int columns = 32, groups = 32;
    __shared__ double scratch[columns * groups / 2];
    const int column = blockIdx.x * columns + threadIdx.x % columns;
    double sum[1] = {};
    if (column < count)
        #pragma unroll 8
        for (int p = threadIdx.x / columns; p < parts; p += groups) sum[0] += partials[size_t(p) * count + column];
    sum_over_groups<columns, groups>(sum, scratch);
    const bool hold = threadIdx.x < columns && column < count;
    if (sum_over_devices<columns>(sum, threadIdx.x % columns, hold, blockIdx.x) && hold) sums[column] = sum[0];
}
