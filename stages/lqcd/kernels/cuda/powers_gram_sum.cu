// The shares of all blocks in Gram matrices of paired powers, added in their order: symmetric matrices, high + low,
// [n][COUNT][COUNT].

#include "powers.cuh"
#include "double_double.cuh"

__device__ __forceinline__ double wider(double a) { return a; }
__device__ __forceinline__ DoubleDouble wider(DoubleDouble a) { return a; }
__device__ __forceinline__ double low_of(double) { return 0; }
__device__ __forceinline__ double low_of(DoubleDouble a) { return a.low; }

// A block has 32 pairs and GROUPS runs of shares; blockIdx.y counts right-hand sides.
template <class Number, int RHS, int STEPS, int GROUPS>
__global__ void __launch_bounds__(32 * GROUPS)
    powers_gram_sum(const Number* __restrict__ partials, double* __restrict__ high, double* __restrict__ low, int parts) {
    using Powers = Powers<STEPS, RHS>;
    __shared__ Number shared[GROUPS][32];
    const int lane = threadIdx.x % 32, group = threadIdx.x / 32, pair = blockIdx.x * 32 + lane, n = blockIdx.y;
    Number total = {};
    if (pair < Powers::PAIRS)
        #pragma unroll 4
        for (int part = group; part < parts; part += GROUPS)
            total = sum(total, partials[(size_t(part) * RHS + n) * Powers::PAIRS + pair]);
    shared[group][lane] = total;
    __syncthreads();
    if (group || pair >= Powers::PAIRS) return;
    for (int g = 1; g < GROUPS; g++) total = sum(total, shared[g][lane]);
    int j = 0, k = pair;
    while (k >= Powers::COUNT - j) k -= Powers::COUNT - j++;
    k += j;
    const int at = n * Powers::COUNT * Powers::COUNT;
    high[at + j * Powers::COUNT + k] = high[at + k * Powers::COUNT + j] = high_of(total);
    low[at + j * Powers::COUNT + k] = low[at + k * Powers::COUNT + j] = low_of(total);
}
