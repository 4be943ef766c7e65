// Coarse-grid dslash with links of 16 bits, many right-hand sides: at every site
//   out(s) = a diagonal(s) + b sum_d links(s, d) x(neighbour(s, d)),   links C x C, x C x N, complex.
//
// Links are fp16 with a scale for each site and group of ROWS = 16 rows. Fields are single precision; tensor cores take
// them rounded to tf32, which has as many digits as fp16 and the exponents of single precision. A block makes GROUPS
// groups of rows of one site; its warps share the terms of the sum, K = D C numbers long, and add up in shared memory.
// Links lie in the order in which lanes need them, a tile of 16 rows and 16 terms after the other, the real parts first:
// lane (g, t) = (lane / 4, lane % 4) finds rows g and g + 8 of terms t, t + 4, then the same of terms t + 8, t + 12.

#include "complex.cuh"
#include "share.cuh"
#include "tensor_cores.cuh"

constexpr int CHUNK = 16;  // terms of a tile of the links

// Two numbers as fp16, the first in the lower half.
__device__ __forceinline__ unsigned halves(float low, float high) {
    unsigned both;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}

__device__ __forceinline__ float2 floats(unsigned both) {
    float2 v;
    asm("{.reg .b16 low, high; mov.b32 {low, high}, %2; cvt.f32.f16 %0, low; cvt.f32.f16 %1, high;}"
        : "=f"(v.x), "=f"(v.y)
        : "r"(both));
    return v;
}

struct Links {
    uint4 re, im;

    __device__ __forceinline__ void load(const uint4* at) { re = __ldcs(at), im = __ldcs(at + WARP); }
};

// The sums of a warp on tensor cores: TILES tiles of 16 rows and 8 right-hand sides. Column j of tile i is right-hand
// side j PAIR + i % PAIR of the run of 8 PAIR that has this tile.
template <int C, int N, int GROUPS> struct TensorSums {
    static constexpr int COLUMNS = ceil_div(N, ceil_div(N, 32)), TILES = ceil_div(COLUMNS, 8);
    static constexpr int PAIR = TILES % 2 || N % 2 || COLUMNS % 2 ? 1 : 2;
    static constexpr bool WHOLE = N % (8 * TILES) == 0;
    static constexpr int UNITS = GROUPS * 4 * TILES / PAIR;
    using Unit = Vector<float, PAIR>;
    float re[GROUPS][TILES][4] = {}, im[GROUPS][TILES][4] = {};

    __device__ __forceinline__ void add(const Links (&u)[GROUPS], const float2* x, int term, int first, int lane) {
        unsigned ar[GROUPS][2][4], ai[GROUPS][2][4];
        #pragma unroll
        for (int group = 0; group < GROUPS; group++) {
            expand(ar[group], u[group].re);
            expand(ai[group], u[group].im);
        }
        #pragma unroll
        for (int tile = 0; tile < TILES; tile += PAIR) {
            float xr[PAIR][4], xi[PAIR][4];
            load(xr, xi, x, term, first, tile, lane);
            #pragma unroll
            for (int p = 0; p < PAIR; p++)
                #pragma unroll
                for (int h = 0; h < 2; h++) {
                    unsigned r[2], i[2], minus_i[2];
                    #pragma unroll
                    for (int k = 0; k < 2; k++) {
                        r[k] = tf32(xr[p][2 * h + k]), i[k] = tf32(xi[p][2 * h + k]);
                        minus_i[k] = i[k] ^ SIGN;
                    }
                    #pragma unroll
                    for (int group = 0; group < GROUPS; group++) {
                        multiply_add(re[group][tile + p], ar[group][h], r);
                        multiply_add(im[group][tile + p], ar[group][h], i);
                        multiply_add(re[group][tile + p], ai[group][h], minus_i);
                        multiply_add(im[group][tile + p], ai[group][h], r);
                    }
                }
        }
    }

    __device__ __forceinline__ Unit unit(int u) const {
        const int c = u % 2 + u / 2 % 2 * 2, pair = u / 4 % (TILES / PAIR), group = u / 4 / (TILES / PAIR);
        float r[PAIR], i[PAIR];
        #pragma unroll
        for (int p = 0; p < PAIR; p++) r[p] = re[group][pair * PAIR + p][c], i[p] = im[group][pair * PAIR + p][c];
        Unit result;
        pack(result, r, i);
        return result;
    }

    static __device__ __forceinline__ int row(int u, int lane) {
        return u / 4 / (TILES / PAIR) * ROWS + lane / 4 + u / 2 % 2 * 8;
    }

    static __device__ __forceinline__ int rhs(int u, int lane) {
        return (u / 4 % (TILES / PAIR) * 8 + lane % 4 * 2 + u % 2) * PAIR;
    }

    __device__ __forceinline__ void finish() {}
    static __device__ __forceinline__ bool has(int) { return true; }

  private:
    // Terms term + t + 4 j of tiles from `tile` on.
    static __device__ __forceinline__ void load(float (&xr)[PAIR][4], float (&xi)[PAIR][4], const float2* x, int term,
                                                int first, int tile, int lane) {
        const int own = tile * 8 + lane / 4 * PAIR, rhs = first + own;
        #pragma unroll
        for (int j = 0; j < 4; j++) {
            const int k = term + lane % 4 + 4 * j;
            float r[PAIR] = {}, i[PAIR] = {};
            if ((C % CHUNK == 0 || k < C) && (WHOLE || own < COLUMNS && rhs < N))
                unpack(*reinterpret_cast<const Unit*>(x + k * N + rhs), r, i);
            #pragma unroll
            for (int p = 0; p < PAIR; p++) xr[p][j] = r[p], xi[p][j] = i[p];
        }
    }

    // fp16 is tf32
    static __device__ __forceinline__ void expand(unsigned (&a)[2][4], const uint4& both) {
        const float2 v[4] = {floats(both.x), floats(both.y), floats(both.z), floats(both.w)};
        #pragma unroll
        for (int h = 0; h < 2; h++)
            #pragma unroll
            for (int high = 0; high < 2; high++) {
                a[h][high] = __float_as_uint(v[2 * h + high].x);
                a[h][2 + high] = __float_as_uint(v[2 * h + high].y);
            }
    }
};

// A few right-hand sides on the arithmetic units: a lane keeps rows g and g + 8 of each group.
template <int C, int N, int GROUPS> struct FewSums {
    static constexpr int COLUMNS = N, PAIR = 1, UNITS = GROUPS * 2 * N;
    static constexpr bool WHOLE = true;
    using Unit = float2;
    float re[GROUPS][2][N] = {}, im[GROUPS][2][N] = {};

    __device__ __forceinline__ void add(const Links (&u)[GROUPS], const float2* x, int term, int, int lane) {
        #pragma unroll
        for (int half = 0; half < 2; half++) {
            float2 v[2][N];
            #pragma unroll
            for (int j = 0; j < 2; j++) {
                const int k = term + lane % 4 + 8 * half + 4 * j;
                #pragma unroll
                for (int n = 0; n < N; n++) v[j][n] = C % CHUNK == 0 || k < C ? x[k * N + n] : float2{};
            }
            #pragma unroll
            for (int group = 0; group < GROUPS; group++)
                #pragma unroll
                for (int r = 0; r < 2; r++) {
                    const uint4 wr = u[group].re, wi = u[group].im;
                    const float2 ur = floats(half ? r ? wr.w : wr.z : r ? wr.y : wr.x);
                    const float2 ui = floats(half ? r ? wi.w : wi.z : r ? wi.y : wi.x);
                    #pragma unroll
                    for (int n = 0; n < N; n++) {
                        float &a = re[group][r][n], &b = im[group][r][n];
                        a = fmaf(ur.x, v[0][n].x, fmaf(-ui.x, v[0][n].y, a));
                        b = fmaf(ur.x, v[0][n].y, fmaf(ui.x, v[0][n].x, b));
                        a = fmaf(ur.y, v[1][n].x, fmaf(-ui.y, v[1][n].y, a));
                        b = fmaf(ur.y, v[1][n].y, fmaf(ui.y, v[1][n].x, b));
                    }
                }
        }
    }

    __device__ __forceinline__ void finish() {
        #pragma unroll
        for (int i = 0; i < UNITS; i++)
            #pragma unroll
            for (int step = 1; step < 4; step *= 2) {
                re[i / N / 2][i / N % 2][i % N] += __shfl_xor_sync(~0u, re[i / N / 2][i / N % 2][i % N], step);
                im[i / N / 2][i / N % 2][i % N] += __shfl_xor_sync(~0u, im[i / N / 2][i / N % 2][i % N], step);
            }
    }

    static __device__ __forceinline__ bool has(int lane) { return lane % 4 == 0; }
    __device__ __forceinline__ Unit unit(int u) const {
        return {re[u / N / 2][u / N % 2][u % N], im[u / N / 2][u / N % 2][u % N]};
    }
    static __device__ __forceinline__ int row(int u, int lane) { return u / N / 2 * ROWS + u / N % 2 * 8 + lane / 4; }
    static __device__ __forceinline__ int rhs(int u, int) { return u % N; }
};

__device__ __forceinline__ float2 sum(float2 a, float2 b) { return {a.x + b.x, a.y + b.y}; }
__device__ __forceinline__ float4 sum(float4 a, float4 b) { return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w}; }
__device__ __forceinline__ float2 affine(float a, float2 x, float b, float2 y) {
    return {a * x.x + b * y.x, a * x.y + b * y.y};
}
__device__ __forceinline__ float4 affine(float a, float4 x, float b, float4 y) {
    return {a * x.x + b * y.x, a * x.y + b * y.y, a * x.z + b * y.z, a * x.w + b * y.w};
}

// grid (sites, runs of GROUPS groups of rows, groups of COLUMNS right-hand sides); SPLIT warps. `neighbours` has
// DIRECTIONS of each site, `scales` one number for each group of rows.
template <template <int, int, int> class SumsOf, int C, int N, int DIRECTIONS, int GROUPS, int SPLIT>
__global__ void __launch_bounds__(SPLIT* WARP)
    half_coarse_dslash(const uint4* __restrict__ links, const float* __restrict__ scales,
                       const int* __restrict__ neighbours, const float2* __restrict__ x, const float2* diagonal,
                       float2* out, float a, float b) {
    using Sums = SumsOf<C, N, GROUPS>;
    using Unit = typename Sums::Unit;
    constexpr int chunks = ceil_div(C, CHUNK), steps = DIRECTIONS * chunks, tile = 2 * WARP;
    extern __shared__ __align__(16) unsigned char shared[];
    Unit* sums = reinterpret_cast<Unit*>(shared);
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, first = blockIdx.z * Sums::COLUMNS;
    const size_t site = block_of_share<1>(blockIdx.x), group0 = (site * gridDim.y + blockIdx.y) * GROUPS;
    const uint4* mine = links + group0 * steps * tile + lane;

    Sums total;
    #pragma unroll 1
    for (int step = warp; step < steps; step += SPLIT) {
        Links u[GROUPS];
        #pragma unroll
        for (int group = 0; group < GROUPS; group++) u[group].load(mine + size_t(group * steps + step) * tile);
        const int there = neighbours[site * DIRECTIONS + step / chunks];
        total.add(u, x + size_t(there) * C * N, step % chunks * CHUNK, first, lane);
    }
    total.finish();

    const auto put = [&](int u, int lane, Unit value) {
        const int row = Sums::row(u, lane), at_row = blockIdx.y * GROUPS * ROWS + row, rhs = Sums::rhs(u, lane);
        if (!Sums::has(lane) || C % ROWS && at_row >= C) return;
        if (!Sums::WHOLE && (rhs >= Sums::COLUMNS || first + rhs >= N)) return;
        const size_t at = (site * C + at_row) * N + first + rhs;
        const Unit d = diagonal ? *reinterpret_cast<const Unit*>(diagonal + at) : Unit{};
        *reinterpret_cast<Unit*>(out + at) = affine(a, d, b * scales[group0 + row / ROWS], value);
    };
    if constexpr (SPLIT == 1) {
        #pragma unroll
        for (int u = 0; u < Sums::UNITS; u++) put(u, lane, total.unit(u));
    } else {
        #pragma unroll
        for (int u = 0; u < Sums::UNITS; u++) sums[(warp * Sums::UNITS + u) * WARP + lane] = total.unit(u);
        __syncthreads();
        for (int i = threadIdx.x; i < Sums::UNITS * WARP; i += SPLIT * WARP) {
            Unit value = sums[i];
            #pragma unroll
            for (int w = 1; w < SPLIT; w++) value = sum(value, sums[w * Sums::UNITS * WARP + i]);
            put(i / WARP, i % WARP, value);
        }
    }
}

__device__ __forceinline__ float power_of_two(int exponent) { return __int_as_float((127 + exponent) << 23); }

// Links rounded, and the scale of each group of rows: a power of two by which its largest number is less than 2^15.
// grid (sites, groups of rows).
template <int C, int DIRECTIONS>
__global__ void __launch_bounds__(256)
    half_tiles(const float2* __restrict__ links, unsigned* __restrict__ tiles, float* __restrict__ scales) {
    constexpr int chunks = ceil_div(C, CHUNK), block = DIRECTIONS * ROWS * C, words = DIRECTIONS * chunks * WARP * 4;
    __shared__ unsigned largest;
    const size_t site = block_of_share<1>(blockIdx.x), group = site * gridDim.y + blockIdx.y;
    const float2* matrices = links + site * DIRECTIONS * C * C;
    const int row0 = blockIdx.y * ROWS;
    if (threadIdx.x == 0) largest = 0;
    __syncthreads();
    float own = 0;
    for (int i = threadIdx.x; i < block; i += 256) {
        const int column = i % C, row = row0 + i / C % ROWS, d = i / C / ROWS;
        if (C % ROWS && row >= C) continue;
        const float2 v = matrices[(d * C + row) * C + column];
        own = fmaxf(own, fmaxf(fabsf(v.x), fabsf(v.y)));
    }
    atomicMax(&largest, __float_as_uint(own));
    __syncthreads();
    const int exponent = max(int(largest >> 23) - 126, -100);  // largest < 2^exponent
    const float inverse = power_of_two(15 - exponent);
    if (threadIdx.x == 0) scales[group] = power_of_two(exponent - 15);
    unsigned* mine = tiles + group * words * 2;
    for (int i = threadIdx.x; i < words; i += 256) {
        const int place = i % 4, lane = i / 4 % WARP, chunk = i / 4 / WARP % chunks, d = i / 4 / WARP / chunks;
        const int row = row0 + lane / 4 + place % 2 * 8, column = chunk * CHUNK + lane % 4 + place / 2 * 8;
        float2 v[2];
        #pragma unroll
        for (int j = 0; j < 2; j++) {
            const bool inside = (C % ROWS == 0 || row < C) && (C % CHUNK == 0 || column + 4 * j < C);
            v[j] = inside ? matrices[(d * C + row) * C + column + 4 * j] : float2{};
        }
        unsigned* at = mine + (i / 4 / WARP * 2 * WARP + lane) * 4 + place;
        at[0] = halves(inverse * v[0].x, inverse * v[1].x);
        at[4 * WARP] = halves(inverse * v[0].y, inverse * v[1].y);
    }
}
