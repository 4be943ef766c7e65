// Coarse-grid dslash, many right-hand sides: at every site
//   out(s) = a diagonal(s) + b sum_d links(s, d) x(neighbour(s, d)),   links C x C, x C x N, complex.
//
// A block makes ROWS = 16 rows of one site; its warps share the terms of the sum, K = D C numbers long, among them
// and add up in shared memory, so that coarse grids of a few sites still fill the device. Links are read once; they
// lie in the order in which lanes need them (`coarse_dslash.py` packs them): for each group of 16 rows and each 8
// terms, lane (g, t) = (lane / 4, lane % 4) finds rows g and g + 8 of terms t and t + 4 in 32 consecutive bytes.
// More than a few right-hand sides go to the tensor cores (tensor_cores.cuh), for several groups of rows at once. A
// tile's columns are right-hand sides TILES apart, so that a lane's are neighbours in memory.

#include "complex.cuh"
#include "tensor_cores.cuh"
#include "share.cuh"

// The four matrix elements of a lane: (row g, term t), (g + 8, t), (g, t + 4), (g + 8, t + 4).
struct Links {
    float re[4], im[4];

    __device__ __forceinline__ void load(const float4* at) {
        const float4 first = __ldcs(at), second = __ldcs(at + 1);
        re[0] = first.x, im[0] = first.y, re[1] = first.z, im[1] = first.w;
        re[2] = second.x, im[2] = second.y, re[3] = second.z, im[3] = second.w;
    }
};

// The sums of a warp on tensor cores: TILES tiles of 16 rows and 8 right-hand sides, of N in a row.
template <int C, int N, int GROUPS> struct TensorSums {
    static constexpr int COLUMNS = N < 32 ? N : 32, TILES = ceil_div(COLUMNS, 8), PAIR = TILES % 2 ? 1 : 2;
    static constexpr bool WHOLE = N % (8 * TILES) == 0;
    using Pair = Vector<float, PAIR>;
    float re[GROUPS][TILES][4] = {}, im[GROUPS][TILES][4] = {};

    __device__ __forceinline__ void add(const Links (&links)[GROUPS], const float2* x, int term, int first, int lane) {
        Parts<4> a[GROUPS], b[GROUPS];
        #pragma unroll
        for (int group = 0; group < GROUPS; group++) {
            a[group] = Parts<4>(links[group].re);
            b[group] = Parts<4>(links[group].im);
        }
        #pragma unroll
        for (int tile = 0; tile < TILES; tile += PAIR) {
            const int rhs = first + lane / 4 * TILES + tile;
            float xr[PAIR][2], xi[PAIR][2];
            #pragma unroll
            for (int half = 0; half < 2; half++) {
                const int k = term + lane % 4 + 4 * half;
                float r[PAIR] = {}, i[PAIR] = {};
                if (C % TERMS == 0 || k < C) load(r, i, x + k * N, rhs);
                #pragma unroll
                for (int p = 0; p < PAIR; p++) xr[p][half] = r[p], xi[p][half] = i[p];
            }
            #pragma unroll
            for (int p = 0; p < PAIR; p++) {
                const Parts<2> r(xr[p]), i(xi[p]), minus_i = i.negative();
                #pragma unroll
                for (int group = 0; group < GROUPS; group++) {
                    multiply_add(re[group][tile + p], a[group], r);
                    multiply_add(re[group][tile + p], b[group], minus_i);
                    multiply_add(im[group][tile + p], a[group], i);
                    multiply_add(im[group][tile + p], b[group], r);
                }
            }
        }
    }

    __device__ __forceinline__ void store(float2* sums, int lane) const {
        #pragma unroll
        for (int i = 0; i < GROUPS * TILES * 4; i++) {
            const int c = i % 4, tile = i / 4 % TILES, group = i / 4 / TILES;
            const int row = group * ROWS + lane / 4 + 8 * (c / 2), rhs = (2 * (lane % 4) + c % 2) * TILES + tile;
            if (WHOLE || rhs < COLUMNS) sums[row * COLUMNS + rhs] = {re[group][tile][c], im[group][tile][c]};
        }
    }

  private:
    static __device__ __forceinline__ void load(float (&re)[PAIR], float (&im)[PAIR], const float2* row, int rhs) {
        if constexpr (WHOLE)
            unpack(*reinterpret_cast<const Pair*>(row + rhs), re, im);
        else
            #pragma unroll
            for (int p = 0; p < PAIR; p++)
                if (rhs + p < N) re[p] = row[rhs + p].x, im[p] = row[rhs + p].y;
    }
};

// The same for a few right-hand sides, on the arithmetic units: a lane keeps rows g and g + 8.
template <int C, int N, int> struct FewSums {
    static constexpr int COLUMNS = N;
    float re[2][N] = {}, im[2][N] = {};

    __device__ __forceinline__ void add(const Links (&links)[1], const float2* x, int term, int, int lane) {
        #pragma unroll
        for (int half = 0; half < 2; half++) {
            const int k = term + lane % 4 + 4 * half;
            if (C % TERMS && k >= C) continue;
            #pragma unroll
            for (int n = 0; n < N; n++) {
                const float2 v = x[k * N + n];
                #pragma unroll
                for (int r = 0; r < 2; r++) {
                    const float ur = links[0].re[2 * half + r], ui = links[0].im[2 * half + r];
                    re[r][n] = fmaf(ur, v.x, fmaf(-ui, v.y, re[r][n]));
                    im[r][n] = fmaf(ur, v.y, fmaf(ui, v.x, im[r][n]));
                }
            }
        }
    }

    __device__ __forceinline__ void store(float2* sums, int lane) {
        #pragma unroll
        for (int r = 0; r < 2; r++)
            #pragma unroll
            for (int n = 0; n < N; n++) {
                #pragma unroll
                for (int step = 1; step < 4; step *= 2) {
                    re[r][n] += __shfl_xor_sync(~0u, re[r][n], step);
                    im[r][n] += __shfl_xor_sync(~0u, im[r][n], step);
                }
                if (lane % 4 == 0) sums[(lane / 4 + 8 * r) * COLUMNS + n] = {re[r][n], im[r][n]};
            }
    }
};

// grid (sites, GROUPS groups of rows, groups of COLUMNS right-hand sides); SPLIT warps. `neighbours` has DIRECTIONS of
// each site.
template <template <int, int, int> class SumsOf, int C, int N, int DIRECTIONS, int GROUPS, int SPLIT>
__global__ void __launch_bounds__(SPLIT* WARP)
    coarse_dslash(const float4* __restrict__ links, const int* __restrict__ neighbours,
                  const float2* __restrict__ x, const float2* diagonal, float2* out, float a, float b) {
    using Sums = SumsOf<C, N, GROUPS>;
    constexpr int chunks = ceil_div(C, TERMS), steps = DIRECTIONS * chunks;
    constexpr int rows = GROUPS * ROWS, block = rows * Sums::COLUMNS;
    extern __shared__ __align__(16) unsigned char shared[];
    float2* sums = reinterpret_cast<float2*>(shared);
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, first = blockIdx.z * Sums::COLUMNS;
    const size_t site = block_of_share<1>(blockIdx.x);
    const float4* mine = links + ((site * gridDim.y + blockIdx.y) * GROUPS * steps * WARP + lane) * 2;

    Sums sum;
    #pragma unroll(GROUPS == 1 ? 3 : 1)
    for (int step = warp; step < steps; step += SPLIT) {
        Links u[GROUPS];
        #pragma unroll
        for (int group = 0; group < GROUPS; group++) u[group].load(mine + size_t(group * steps + step) * WARP * 2);
        const int there = neighbours[site * DIRECTIONS + step / chunks];
        sum.add(u, x + size_t(there) * C * N, step % chunks * TERMS, first, lane);
    }
    sum.store(sums + warp * block, lane);
    __syncthreads();

    for (int i = threadIdx.x; i < block; i += SPLIT * WARP) {
        const int row = blockIdx.y * rows + i / Sums::COLUMNS, rhs = first + i % Sums::COLUMNS;
        if (C % rows && row >= C) break;
        if (N % Sums::COLUMNS && rhs >= N) continue;
        float2 total = sums[i];
        #pragma unroll
        for (int w = 1; w < SPLIT; w++) {
            const float2 other = sums[w * block + i];
            total.x += other.x, total.y += other.y;
        }
        const size_t at = (site * C + row) * N + rhs;
        const float2 d = diagonal ? diagonal[at] : float2{0, 0};
        out[at] = {a * d.x + b * total.x, a * d.y + b * total.y};
    }
}
