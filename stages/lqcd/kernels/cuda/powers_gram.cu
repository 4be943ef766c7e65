// Gram matrices of paired powers, the real parts of x_j^H x_k of each right-hand side, in double on tensor cores.
//
// A warp multiplies 8 x 4 by 4 x 8: with (g, t) = (lane / 4, lane % 4) a lane holds (g, t) of the left matrix and (t, g)
// of the right one. Both are the same numbers of a tile of 8 vectors at 4 reals, so that each is loaded once. Products
// of single numbers are exact in double.

#include "complex.cuh"
#include "powers.cuh"
#include "share.cuh"

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
