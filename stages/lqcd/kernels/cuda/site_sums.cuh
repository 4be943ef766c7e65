// Sums over the sites of a block, in double and in a fixed order: the first stage of a reduction that rides along
// with a kernel whose threads are numbered site * LANES + lane, as in hisq_dslash.cu.

// Adds value[k][w], which belongs to right-hand side (k LANES + lane) WIDTH + w, over the SITES sites of the block
// and writes N = VECTORS LANES WIDTH totals to `row`. Neighbouring sites meet by shuffles if whole ones fill a warp.
template <int SITES, int LANES, int VECTORS, int WIDTH> struct SiteSums {
    static constexpr int N = VECTORS * LANES * WIDTH, THREADS = SITES * LANES;
    static constexpr bool BY_WARP = 32 % LANES == 0 && THREADS % 32 == 0;
    static constexpr int ROWS = BY_WARP ? THREADS / 32 : SITES;
    static constexpr int SCRATCH_BYTES = ROWS * N * sizeof(double);

    // All threads of the block call this; `scratch` is shared memory that nobody else uses any more.
    static __device__ __forceinline__ void write(double (&value)[VECTORS * WIDTH], double* scratch, double* row) {
        const int lane = threadIdx.x % LANES;
        if constexpr (BY_WARP)
            #pragma unroll
            for (int i = 0; i < VECTORS * WIDTH; i++)
                #pragma unroll
                for (int apart = LANES; apart < 32; apart *= 2)
                    value[i] += __shfl_xor_sync(0xffffffff, value[i], apart);
        if (!BY_WARP || threadIdx.x % 32 < LANES) {
            double* mine = scratch + threadIdx.x / (BY_WARP ? 32 : LANES) * N + lane * WIDTH;
            #pragma unroll
            for (int i = 0; i < VECTORS * WIDTH; i++) mine[i / WIDTH * LANES * WIDTH + i % WIDTH] = value[i];
        }
        __syncthreads();
        for (int n = threadIdx.x; n < N; n += THREADS) {
            double sum = 0;
            #pragma unroll
            for (int i = 0; i < ROWS; i++) sum += scratch[i * N + n];
            row[n] = sum;
        }
    }
};
