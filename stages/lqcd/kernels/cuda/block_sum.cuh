// Sums over the threads of a block in a fixed order. A block is GROUPS (a power of two) groups of COLUMNS threads,
// thread = group * COLUMNS + column, and each column is summed over the groups.

// Afterwards the threads of group 0 hold the totals. `scratch` is shared memory for VALUES * COLUMNS * GROUPS / 2
// doubles.
template <int COLUMNS, int GROUPS, int VALUES>
__device__ __forceinline__ void sum_over_groups(double (&values)[VALUES], double* scratch) {
    static_assert((GROUPS & (GROUPS - 1)) == 0, "halving loses groups unless there are a power of two");
    const int group = threadIdx.x / COLUMNS;
    for (int half = GROUPS / 2; half > 0; half /= 2) {
        const int partner = threadIdx.x % (half * COLUMNS);
        __syncthreads();
        if (group >= half && group < 2 * half)
            #pragma unroll
            for (int v = 0; v < VALUES; v++) scratch[v * (half * COLUMNS) + partner] = values[v];
        __syncthreads();
        if (group < half)
            #pragma unroll
            for (int v = 0; v < VALUES; v++) values[v] += scratch[v * (half * COLUMNS) + partner];
    }
}
