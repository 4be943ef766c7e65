// Gram matrices of paired powers summed by vector units: in working precision, or in twice double precision by
// error-free transformations, each vector read once for each tile of 3 x 3 products.

#include "complex.cuh"
#include "powers.cuh"
#include "share.cuh"
#include "double_double.cuh"

// Sums of products in the precision of the numbers, and as Cray's and IEEE arithmetic add numbers of twice double.
template <class Real> struct Working {
    Real total = 0;
    __device__ __forceinline__ void add(Real a, Real b) { total += a * b; }
    __device__ __forceinline__ DoubleDouble value() const { return {double(total), 0}; }
};
template <class Real> struct Cray {
    DoubleDouble total = {};
    __device__ __forceinline__ void add(double a, double b) { total = cray_sum(total, two_product(a, b)); }
    __device__ __forceinline__ DoubleDouble value() const { return total; }
};
template <class Real> struct Ieee {
    DoubleDouble total = {};
    __device__ __forceinline__ void add(double a, double b) { total = ieee_sum(total, two_product(a, b)); }
    __device__ __forceinline__ DoubleDouble value() const { return total; }
};

constexpr int TILE = 3;

// A warp has a tile of products of one right-hand side, lanes share the rows; blockIdx.z counts groups of WARPS tiles,
// blockIdx.y right-hand sides. partials[block][n][pair] is the share of a block in x.
template <class Real, int RHS, int STEPS, int WARPS, template <class> class Sum>
__global__ void __launch_bounds__(32 * WARPS)
    powers_exact_gram(const Complex<Real>* __restrict__ powers, DoubleDouble* __restrict__ partials, long long rows) {
    using Powers = Powers<STEPS, RHS>;
    constexpr int groups = (Powers::COUNT + TILE - 1) / TILE;
    const int lane = threadIdx.x % 32, n = blockIdx.y;
    int left = 0, right = blockIdx.z * WARPS + threadIdx.x / 32;  // number of the tile, then its column
    while (left < groups && right >= groups - left) right -= groups - left++;
    if (left >= groups) return;
    right += left;
    const Complex<Real>*xs[TILE], *ys[TILE];
    #pragma unroll
    for (int i = 0; i < TILE; i++) {
        xs[i] = powers + Powers::start(min(left * TILE + i, Powers::COUNT - 1), n, rows);
        ys[i] = powers + Powers::start(min(right * TILE + i, Powers::COUNT - 1), n, rows);
    }
    Sum<Real> sums[TILE][TILE];
    for (long long row = first_row() + blockIdx.x * 32LL + lane; row < end_row(rows); row += gridDim.x * 32LL) {
        Complex<Real> x[TILE], y[TILE];
        #pragma unroll
        for (int i = 0; i < TILE; i++) x[i] = xs[i][row * (2 * RHS)], y[i] = ys[i][row * (2 * RHS)];
        #pragma unroll
        for (int j = 0; j < TILE; j++)
            #pragma unroll
            for (int k = 0; k < TILE; k++)
                if (j <= k || left != right) sums[j][k].add(x[j].x, y[k].x), sums[j][k].add(x[j].y, y[k].y);
    }
    #pragma unroll
    for (int j = 0; j < TILE; j++)
        #pragma unroll
        for (int k = 0; k < TILE; k++) {
            DoubleDouble total = sums[j][k].value();
            for (int distance = 16; distance > 0; distance /= 2) total = ieee_sum(total, from_lane(total, distance));
            const int one = left * TILE + j, other = right * TILE + k;
            if (lane == 0 && one <= other && other < Powers::COUNT)
                partials[(size_t(blockIdx.x) * RHS + n) * Powers::PAIRS + Powers::pair(one, other)] = total;
        }
}
