// Gram matrices V^H V of many small matrices V [rows][K] of single precision, on the tensor cores of double precision.
//
// A warp multiplies 8 x 4 by 4 x 8. With (g, t) = (lane / 4, lane % 4) a lane holds of A the element (g, t), of B (t, g), of
// C (g, 2t) and (g, 2t + 1). For A = V^T and B = V both are V's element (row t, column g): one load serves all products.

#include "complex.cuh"
#include "share.cuh"

constexpr int WARP = 32, TILE = 8, TERMS = 4;

// c += a b for a 8 x 4, b 4 x 8.
__device__ __forceinline__ void multiply_add(double (&c)[2], double a, double b) {
    asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0,%1}, {%2}, {%3}, {%0,%1};"
        : "+d"(c[0]), "+d"(c[1])
        : "d"(a), "d"(b));
}

// grid (matrices): the tiles from the diagonal on, and with them what they mirror. The warps of a block share the rows of V.
template <int K, int WARPS>
__global__ void __launch_bounds__(WARPS* WARP)
    aggregate_gram(const float2* __restrict__ vectors, double2* __restrict__ out, int rows) {
    constexpr int tiles = ceil_div(K, TILE), all = tiles * (tiles + 1) / 2;
    extern __shared__ __align__(16) double2 sums[];
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
    const size_t matrix = block_of_share<2>(blockIdx.x);
    const float2* V = vectors + matrix * rows * K;

    double re[all][2] = {}, im[all][2] = {};
    #pragma unroll 2
    for (int row = warp * TERMS + t; row < ceil_div(rows, TERMS) * TERMS; row += WARPS * TERMS) {
        double vr[tiles], vi[tiles];
        #pragma unroll
        for (int tile = 0; tile < tiles; tile++) {
            const int column = tile * TILE + g;
            const float2 v = row < rows && column < K ? V[size_t(row) * K + column] : float2{};
            vr[tile] = v.x, vi[tile] = v.y;
        }
        int at = 0;
        #pragma unroll
        for (int i = 0; i < tiles; i++)
            #pragma unroll
            for (int j = i; j < tiles; j++, at++) {
                multiply_add(re[at], vr[i], vr[j]);
                multiply_add(re[at], vi[i], vi[j]);
                multiply_add(im[at], vr[i], vi[j]);
                multiply_add(im[at], -vi[i], vr[j]);
            }
    }

    #pragma unroll
    for (int at = 0; at < all; at++)
        #pragma unroll
        for (int c = 0; c < 2; c++) sums[((warp * all + at) * WARP + lane) * 2 + c] = {re[at][c], im[at][c]};
    __syncthreads();
    double2* G = out + matrix * K * K;
    int at = 0;
    #pragma unroll
    for (int i = 0; i < tiles; i++)
        #pragma unroll
        for (int j = i; j < tiles; j++, at++)
            for (int element = threadIdx.x; element < TILE * TILE; element += WARPS * WARP) {
                const int row = i * TILE + element / TILE, column = j * TILE + element % TILE;
                double2 total = sums[at * 2 * WARP + element];
                for (int w = 1; w < WARPS; w++) {
                    const double2 other = sums[(w * all + at) * 2 * WARP + element];
                    total.x += other.x, total.y += other.y;
                }
                if (row < K && column < K && column >= row) {
                    G[row * K + column] = total;
                    if (column > row) G[column * K + row] = {total.x, -total.y};
                }
            }
}
