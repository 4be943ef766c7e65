// The shares of all blocks in Gram matrices of paired powers, added in their order: symmetric matrices, high + low,
// [n][COUNT][COUNT]. Several devices add those of their own blocks, and then their sums.

#include "powers.cuh"
#include "double_double.cuh"
#include "device_sum.cuh"

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
    const bool hold = group == 0 && pair < Powers::PAIRS;
    if (hold)
        for (int g = 1; g < GROUPS; g++) total = sum(total, shared[g][lane]);
    double sums[2] = {high_of(total), low_of(total)};
    const auto add = [](double (&to)[2], const double (&other)[2]) {
        const Number added = sum(number<Number>(to[0], to[1]), number<Number>(other[0], other[1]));
        to[0] = high_of(added), to[1] = low_of(added);
    };
    if (!sum_over_devices<32>(sums, lane, hold, blockIdx.y * gridDim.x + blockIdx.x, add) || !hold) return;
    int j = 0, k = pair;
    while (k >= Powers::COUNT - j) k -= Powers::COUNT - j++;
    k += j;
    const int at = n * Powers::COUNT * Powers::COUNT;
    high[at + j * Powers::COUNT + k] = high[at + k * Powers::COUNT + j] = sums[0];
    low[at + j * Powers::COUNT + k] = low[at + k * Powers::COUNT + j] = sums[1];
}
