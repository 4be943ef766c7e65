// Gram matrices of paired powers, the real parts of x_j^H x_k of each right-hand side: of single numbers in double on
// tensor cores, of double ones in twice double by vector units and error-free transformations. Blocks leave their
// shares, which a second kernel adds.

#include "complex.cuh"
#include "powers.cuh"
#include "share.cuh"
#include "device_sum.cuh"

// A warp multiplies 8 x 4 by 4 x 8: with (g, t) = (lane / 4, lane % 4) a lane holds (g, t) of the left matrix and (t, g)
// of the right one. Both are the same numbers of a tile of 8 vectors at 4 reals, so that each is loaded once. Products
// of single numbers are exact in double.
__device__ __forceinline__ void multiply_add(double (&c)[2], double a, double b) {
    asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0,%1}, {%2}, {%3}, {%0,%1};"
        : "+d"(c[0]), "+d"(c[1]) : "d"(a), "d"(b));
}

// Of the warps of a block COLUMNS work on neighbouring right-hand sides of the same rows. partials[block][n][pair] is
// the share of a block in x; right-hand sides are dealt out to blocks in y. MAGNITUDES: of |x_j| |x_k|.
template <class Real, int RHS, int STEPS, int WARPS, int COLUMNS, bool MAGNITUDES>
__global__ void __launch_bounds__(32 * WARPS)
    powers_gram(const Complex<Real>* __restrict__ powers, double* __restrict__ partials, long long rows) {
    using Powers = Powers<STEPS, RHS>;
    constexpr int tiles = (Powers::COUNT + 7) / 8, products = tiles * (tiles + 1) / 2, GROUPS = WARPS / COLUMNS;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, group = warp / COLUMNS;
    const int n = blockIdx.y * COLUMNS + warp % COLUMNS;
    const Complex<Real>* vectors[tiles];
    #pragma unroll
    for (int i = 0; i < tiles; i++) {
        const int v = min(8 * i + lane / 4, Powers::COUNT - 1);  // what there is beyond is left out at the end
        vectors[i] = powers + Powers::start(v, min(n, RHS - 1), rows);
    }
    double sums[products][2] = {};
    const long long end = end_row(rows);
    #pragma unroll 4
    for (long long row = first_row() + (blockIdx.x * GROUPS + group) * 4LL; row < end; row += gridDim.x * GROUPS * 4LL) {
        const long long at = row + lane % 4;
        double re[tiles], im[tiles];
        #pragma unroll
        for (int i = 0; i < tiles; i++) {
            Complex<Real> x = {};
            if (at < end) x = vectors[i][at * (2 * RHS)];
            re[i] = MAGNITUDES ? fabs(double(x.x)) : double(x.x), im[i] = MAGNITUDES ? fabs(double(x.y)) : double(x.y);
        }
        int product = 0;
        #pragma unroll
        for (int i = 0; i < tiles; i++)
            #pragma unroll
            for (int j = i; j < tiles; j++, product++) {
                multiply_add(sums[product], re[i], re[j]);
                multiply_add(sums[product], im[i], im[j]);
            }
    }
    __shared__ double shared[WARPS][64];
    int product = 0;
    #pragma unroll
    for (int i = 0; i < tiles; i++)
        #pragma unroll
        for (int j = i; j < tiles; j++, product++) {
            __syncthreads();
            shared[warp][2 * lane] = sums[product][0], shared[warp][2 * lane + 1] = sums[product][1];
            __syncthreads();
            for (int e = threadIdx.x; e < 64 * COLUMNS; e += 32 * WARPS) {
                double total = 0;
                for (int g = 0; g < GROUPS; g++) total += shared[g * COLUMNS + e / 64][e % 64];
                const int left = 8 * i + e % 64 / 8, right = 8 * j + e % 8, rhs = blockIdx.y * COLUMNS + e / 64;
                if (left <= right && right < Powers::COUNT && rhs < RHS)
                    partials[(size_t(blockIdx.x) * RHS + rhs) * Powers::PAIRS + Powers::pair(left, right)] = total;
            }
        }
}

constexpr int TILE = 3;

// Each vector is read once for each tile of 3 x 3 products. A warp has a tile of one right-hand side, lanes share the
// rows; blockIdx.z counts groups of WARPS tiles, blockIdx.y right-hand sides. partials[block][n][pair] is the share of a
// block in x.
template <int RHS, int STEPS, int WARPS>
__global__ void __launch_bounds__(32 * WARPS)
    powers_exact_gram(const Complex<double>* __restrict__ powers, DoubleDouble* __restrict__ partials, long long rows) {
    using Powers = Powers<STEPS, RHS>;
    constexpr int groups = (Powers::COUNT + TILE - 1) / TILE;
    const int lane = threadIdx.x % 32, n = blockIdx.y;
    int left = 0, right = blockIdx.z * WARPS + threadIdx.x / 32;  // number of the tile, then its column
    while (left < groups && right >= groups - left) right -= groups - left++;
    if (left >= groups) return;
    right += left;
    const Complex<double>*xs[TILE], *ys[TILE];
    #pragma unroll
    for (int i = 0; i < TILE; i++) {
        xs[i] = powers + Powers::start(min(left * TILE + i, Powers::COUNT - 1), n, rows);
        ys[i] = powers + Powers::start(min(right * TILE + i, Powers::COUNT - 1), n, rows);
    }
    DoubleDouble sums[TILE][TILE] = {};
    for (long long row = first_row() + blockIdx.x * 32LL + lane; row < end_row(rows); row += gridDim.x * 32LL) {
        Complex<double> x[TILE], y[TILE];
        #pragma unroll
        for (int i = 0; i < TILE; i++) x[i] = xs[i][row * (2 * RHS)], y[i] = ys[i][row * (2 * RHS)];
        #pragma unroll
        for (int j = 0; j < TILE; j++)
            #pragma unroll
            for (int k = 0; k < TILE; k++)
                if (j <= k || left != right) {
                    sums[j][k] = sum(sums[j][k], two_product(x[j].x, y[k].x));
                    sums[j][k] = sum(sums[j][k], two_product(x[j].y, y[k].y));
                }
    }
    #pragma unroll
    for (int j = 0; j < TILE; j++)
        #pragma unroll
        for (int k = 0; k < TILE; k++) {
            const DoubleDouble total = warp_sum(sums[j][k]);
            const int one = left * TILE + j, other = right * TILE + k;
            if (lane == 0 && one <= other && other < Powers::COUNT)
                partials[(size_t(blockIdx.x) * RHS + n) * Powers::PAIRS + Powers::pair(one, other)] = total;
        }
}

__device__ __forceinline__ double low_of(double) { return 0; }
__device__ __forceinline__ double low_of(DoubleDouble a) { return a.low; }

// The shares of all blocks, added in their order: symmetric matrices, high + low, [n][COUNT][COUNT]. Several devices add
// those of their own blocks, and then their sums. A block has 32 pairs and GROUPS runs of shares; blockIdx.y counts
// right-hand sides.
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
