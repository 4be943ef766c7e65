// Second stage of a reduction with very many partial sums, one of each kernel block: sums[n] = sum_row rows[row][n].
// Every block sums a run of rows; the last one to finish, whichever it is, adds the runs in their order.

#include "block_sum.cuh"
#include "device_sum.cuh"

// `runs` has a row for each block; `finished` is zero before and after.
template <int N, int GROUPS>
__global__ void __launch_bounds__(N* GROUPS)
    sum_rows(const double* rows, double* runs, unsigned* finished, double* sums, int count) {
    __shared__ double scratch[N * GROUPS / 2 + 1];
    __shared__ bool last;
    const int column = threadIdx.x % N, group = threadIdx.x / N;
    const int run = (count + gridDim.x - 1) / gridDim.x, begin = blockIdx.x * run, end = min(count, begin + run);

    double sum[1] = {};
    #pragma unroll 8
    for (int row = begin + group; row < end; row += GROUPS) sum[0] += rows[size_t(row) * N + column];
    sum_over_groups<N, GROUPS>(sum, scratch);
    if (group == 0) __stcg(runs + blockIdx.x * N + column, sum[0]);

    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) last = atomicInc(finished, gridDim.x - 1) == gridDim.x - 1;
    __syncthreads();
    if (!last) return;

    __threadfence();
    sum[0] = 0;
    #pragma unroll 4
    for (int i = group; i < gridDim.x; i += GROUPS) sum[0] += __ldcg(runs + i * N + column);
    sum_over_groups<N, GROUPS>(sum, scratch);
    if (sum_over_devices<N>(sum, column, group == 0, 0) && group == 0) sums[column] = sum[0];
}
