// Sums over all blocks of a grid in one launch: each block leaves a row of partial sums, and the block that finishes
// last adds the rows in their order, so that the bits do not depend on which block it was. Several devices do so each,
// and add their sums (device_sum.cuh).

#include "block_sum.cuh"
#include "device_sum.cuh"

// What a reduction needs beside its result: room for a row of VALUES * COLUMNS doubles from each block, and a
// counter for each slice (blockIdx.y) that is zero before and after.
struct GridSums {
    double* partials;
    unsigned* finished;
};

// All threads call this with their share; true in the threads of group 0 of the last block of a slice, which then
// hold the totals of their column. Blocks are as in block_sum.cuh, and so is `scratch`.
template <int COLUMNS, int GROUPS, int VALUES>
__device__ __forceinline__ bool sum_over_grid(double (&values)[VALUES], double* scratch, const GridSums& sums) {
    const int column = threadIdx.x % COLUMNS, group = threadIdx.x / COLUMNS;
    double* rows = sums.partials + size_t(blockIdx.y) * gridDim.x * (COLUMNS * VALUES) + column;
    __shared__ bool last;
    sum_over_groups<COLUMNS, GROUPS>(values, scratch);
    if (gridDim.x > 1) {
        if (group == 0)
            #pragma unroll
            for (int v = 0; v < VALUES; v++) __stcg(rows + (blockIdx.x * VALUES + v) * COLUMNS, values[v]);
        __threadfence();
        __syncthreads();
        if (threadIdx.x == 0) last = atomicInc(sums.finished + blockIdx.y, gridDim.x - 1) == gridDim.x - 1;
        __syncthreads();
        if (!last) return false;

        __threadfence();
        #pragma unroll
        for (int v = 0; v < VALUES; v++) values[v] = 0;
        #pragma unroll 8
        for (int i = group; i < gridDim.x; i += GROUPS)
            #pragma unroll
            for (int v = 0; v < VALUES; v++) values[v] += __ldcg(rows + (i * VALUES + v) * COLUMNS);
        sum_over_groups<COLUMNS, GROUPS>(values, scratch);
    }
    return sum_over_devices<COLUMNS>(values, column, group == 0, blockIdx.y) && group == 0;
}
