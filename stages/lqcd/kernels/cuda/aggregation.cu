// Transfer between the sites of a grid and its aggregates (multigrid), many right-hand sides, on tensor cores:
//   restrict    out = P^H x      x [site][2 n][N], out [aggregate][2 k][N]
//   prolong     out += P x       x [aggregate][2 k][N], out [site][2 n][N]
// P is K vectors on the m = (sites of an aggregate) n rows of each aggregate and chirality; row i belongs to component
// i % n of the site SITES[aggregate][i / n]. Vectors are read once, in the order in which lanes need them, which differs
// between the two (`aggregation.py` packs them). A block has an aggregate and chirality, 2 aggregate + chirality.

#include "complex.cuh"
#include "tensor_cores.cuh"
#include "share.cuh"

// Where row i of an aggregate lies in a field of N right-hand sides: the number of its first one.
template <int COMPONENTS, int N> struct Rows {
    const int* sites;
    int chirality, count;

    __device__ __forceinline__ size_t operator()(int row) const {
        return (size_t(sites[row / COMPONENTS]) * 2 * COMPONENTS + chirality * COMPONENTS + row % COMPONENTS) * N;
    }
};

template <int COMPONENTS, int N>
__device__ __forceinline__ Rows<COMPONENTS, N> rows_of(const int* sites, int sites_per_aggregate, unsigned block) {
    const int aggregate = block / 2, chirality = block % 2;
    return {sites + size_t(aggregate) * sites_per_aggregate, chirality, sites_per_aggregate * COMPONENTS};
}

// Two neighbouring right-hand sides, zero beyond N.
template <int N> __device__ __forceinline__ float4 load_pair(const float2* row, int rhs) {
    if constexpr (N % 2 == 0) return rhs < N ? *reinterpret_cast<const float4*>(row + rhs) : float4{};
    const float2 first = rhs < N ? row[rhs] : float2{}, second = rhs + 1 < N ? row[rhs + 1] : float2{};
    return {first.x, first.y, second.x, second.y};
}

// A right-hand side is a row of a tile here, a vector a column: row g of tile i is right-hand side 16 i + 2 g, row g + 8 is
// 16 i + 2 g + 1. grid (groups of COLUMNS right-hand sides, 2 aggregates); WARPS warps share the rows of an aggregate.
template <int COMPONENTS, int K, int N, int COLUMNS, int WARPS>
__global__ void __launch_bounds__(WARPS* WARP)
    restrict_field(const float4* __restrict__ vectors, const int* __restrict__ sites, const float2* __restrict__ x,
                   float2* __restrict__ out, int sites_per_aggregate) {
    constexpr int chunks = ceil_div(K, 8), tiles = ceil_div(COLUMNS, 16);
    extern __shared__ __align__(16) unsigned char shared[];
    float2* sums = reinterpret_cast<float2*>(shared);
    const unsigned block = block_of_share<2>(blockIdx.y);
    const Rows<COMPONENTS, N> rows = rows_of<COMPONENTS, N>(sites, sites_per_aggregate, block);
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, first = blockIdx.x * COLUMNS;
    const int steps = ceil_div(rows.count, TERMS);
    const float4* mine = vectors + size_t(block) * steps * chunks * WARP + lane;

    float re[tiles][chunks][4] = {}, im[tiles][chunks][4] = {};
    for (int step = warp; step < steps; step += WARPS) {
        float4 half[tiles][2];
        #pragma unroll
        for (int h = 0; h < 2; h++) {
            const int row = step * TERMS + lane % 4 + 4 * h;
            const float2* from = row < rows.count ? x + rows(row) : nullptr;
            #pragma unroll
            for (int tile = 0; tile < tiles; tile++)
                half[tile][h] = from ? load_pair<N>(from, first + tile * 16 + lane / 4 * 2) : float4{};
        }
        Parts<4> xr[tiles], xi[tiles];
        #pragma unroll
        for (int tile = 0; tile < tiles; tile++) {
            const float4 a = half[tile][0], b = half[tile][1];
            xr[tile] = Parts<4>({a.x, a.z, b.x, b.z}), xi[tile] = Parts<4>({a.y, a.w, b.y, b.w});
        }
        #pragma unroll
        for (int chunk = 0; chunk < chunks; chunk++) {
            const float4 v = __ldcs(mine + size_t(step * chunks + chunk) * WARP);
            const Parts<2> vr({v.x, v.z}), vi({v.y, v.w}), minus = vi.negative();
            #pragma unroll
            for (int tile = 0; tile < tiles; tile++) {
                multiply_add(re[tile][chunk], xr[tile], vr);
                multiply_add(re[tile][chunk], xi[tile], vi);
                multiply_add(im[tile][chunk], xi[tile], vr);
                multiply_add(im[tile][chunk], xr[tile], minus);
            }
        }
    }

    #pragma unroll
    for (int i = 0; i < tiles * chunks * 4; i++) {
        const int c = i % 4, chunk = i / 4 % chunks, tile = i / 4 / chunks;
        const int rhs = tile * 16 + lane / 4 * 2 + c / 2, vector = chunk * 8 + lane % 4 * 2 + c % 2;
        if (rhs < COLUMNS && vector < K)
            sums[(warp * K + vector) * COLUMNS + rhs] = {re[tile][chunk][c], im[tile][chunk][c]};
    }
    __syncthreads();
    for (int i = threadIdx.x; i < K * COLUMNS; i += WARPS * WARP) {
        const int rhs = first + i % COLUMNS;
        if (rhs >= N) continue;
        float2 total = sums[i];
        #pragma unroll
        for (int w = 1; w < WARPS; w++) {
            const float2 other = sums[w * K * COLUMNS + i];
            total.x += other.x, total.y += other.y;
        }
        out[(size_t(block) * K + i / COLUMNS) * N + rhs] = total;
    }
}

__device__ __forceinline__ Parts<2> parts(const uint4& v) {
    Parts<2> result;
    result.hi[0] = v.x, result.hi[1] = v.y, result.lo[0] = v.z, result.lo[1] = v.w;
    return result;
}

// A row of the field is a row of a tile, a right-hand side a column: column j of tile i is right-hand side j TILES + i.
// grid (groups of COLUMNS right-hand sides, 2 aggregates, parts); the warps of all parts share an aggregate's rows.
template <int COMPONENTS, int K, int N, int COLUMNS, int WARPS>
__global__ void __launch_bounds__(WARPS* WARP)
    add_prolonged(const float4* __restrict__ vectors, const int* __restrict__ sites, const float2* __restrict__ x,
                  float2* out, int sites_per_aggregate) {
    constexpr int tiles = ceil_div(COLUMNS, 8), chunks = ceil_div(K, TERMS);
    const unsigned block = block_of_share<2>(blockIdx.y);
    const Rows<COMPONENTS, N> rows = rows_of<COMPONENTS, N>(sites, sites_per_aggregate, block);
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, first = blockIdx.x * COLUMNS;
    const int groups = ceil_div(rows.count, ROWS);
    const float4* mine = vectors + (size_t(block) * groups * chunks * WARP + lane) * 2;

    Parts<2> xr[chunks][tiles], xi[chunks][tiles];
    #pragma unroll
    for (int i = 0; i < chunks * tiles; i++) {
        const int chunk = i / tiles, tile = i % tiles, rhs = first + lane / 4 * tiles + tile;
        float2 half[2];
        #pragma unroll
        for (int h = 0; h < 2; h++) {
            const int vector = chunk * TERMS + lane % 4 + 4 * h;
            const bool inside = vector < K && rhs < N;
            half[h] = inside ? x[(size_t(block) * K + vector) * N + rhs] : float2{};
        }
        xr[chunk][tile] = Parts<2>({half[0].x, half[1].x});
        xi[chunk][tile] = Parts<2>({half[0].y, half[1].y});
    }

    constexpr int run = 2 * tiles, width = vector_width<float>(N, run);  // a lane's neighbouring right-hand sides
    const int rhs = first + lane % 4 * run;
    for (int group = blockIdx.z * WARPS + warp; group < groups; group += gridDim.z * WARPS) {
        float before_re[2][run], before_im[2][run];
        float2* there[2];
        #pragma unroll
        for (int h = 0; h < 2; h++) {
            const int row = group * ROWS + lane / 4 + 8 * h;
            there[h] = row < rows.count ? out + rows(row) + rhs : nullptr;
            #pragma unroll
            for (int i = 0; i < run; i += width)
                if (there[h] && rhs + i < N)
                    unpack(*reinterpret_cast<const Vector<float, width>*>(there[h] + i), before_re[h] + i, before_im[h] + i);
        }
        float re[tiles][4] = {}, im[tiles][4] = {};
        #pragma unroll
        for (int chunk = 0; chunk < chunks; chunk++) {
            const float4* at = mine + size_t(group * chunks + chunk) * WARP * 2;
            const float4 upper = __ldcs(at), lower = __ldcs(at + 1);
            const Parts<4> vr({upper.x, upper.z, lower.x, lower.z}), vi({upper.y, upper.w, lower.y, lower.w});
            #pragma unroll
            for (int tile = 0; tile < tiles; tile++) {
                multiply_add(re[tile], vr, xr[chunk][tile]);
                multiply_add(re[tile], vi, xi[chunk][tile].negative());
                multiply_add(im[tile], vr, xi[chunk][tile]);
                multiply_add(im[tile], vi, xr[chunk][tile]);
            }
        }
        #pragma unroll
        for (int h = 0; h < 2; h++) {
            #pragma unroll
            for (int i = 0; i < run; i++) {
                const int c = 2 * h + i / tiles, tile = i % tiles;
                before_re[h][i] += re[tile][c], before_im[h][i] += im[tile][c];
            }
            #pragma unroll
            for (int i = 0; i < run; i += width)
                if (there[h] && rhs + i < N)
                    pack(*reinterpret_cast<Vector<float, width>*>(there[h] + i), before_re[h] + i, before_im[h] + i);
        }
    }
}

// The same for more than 16 right-hand sides, 16 after the other for vectors that are read once; x is in shared memory, in
// parts and in the order in which lanes need it. grid (1, 2 aggregates, parts).
template <int COMPONENTS, int K, int N, int WARPS>
__global__ void __launch_bounds__(WARPS* WARP)
    add_prolonged_to_many(const float4* __restrict__ vectors, const int* __restrict__ sites,
                          const float2* __restrict__ x, float2* out, int sites_per_aggregate) {
    constexpr int tiles = ceil_div(N, 16) * 2, chunks = ceil_div(K, TERMS), width = vector_width<float>(N, 4);
    extern __shared__ __align__(16) unsigned char shared[];
    uint4* coarse = reinterpret_cast<uint4*>(shared);  // [chunk][tile][re and im][lane]: two numbers, high and low parts
    const unsigned block = block_of_share<2>(blockIdx.y);
    const Rows<COMPONENTS, N> rows = rows_of<COMPONENTS, N>(sites, sites_per_aggregate, block);
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const int groups = ceil_div(rows.count, ROWS);
    const float4* mine = vectors + (size_t(block) * groups * chunks * WARP + lane) * 2;

    for (int i = warp; i < chunks * tiles; i += WARPS) {
        const int chunk = i / tiles, tile = i % tiles, rhs = tile / 2 * 16 + lane / 4 * 2 + tile % 2;
        float2 half[2];
        #pragma unroll
        for (int h = 0; h < 2; h++) {
            const int vector = chunk * TERMS + lane % 4 + 4 * h;
            half[h] = vector < K && rhs < N ? x[(size_t(block) * K + vector) * N + rhs] : float2{};
        }
        const Parts<2> r({half[0].x, half[1].x}), m({half[0].y, half[1].y});
        coarse[(i * 2) * WARP + lane] = {r.hi[0], r.hi[1], r.lo[0], r.lo[1]};
        coarse[(i * 2 + 1) * WARP + lane] = {m.hi[0], m.hi[1], m.lo[0], m.lo[1]};
    }
    __syncthreads();

    for (int group = blockIdx.z * WARPS + warp; group < groups; group += gridDim.z * WARPS) {
        Parts<4> vr[chunks], vi[chunks];
        #pragma unroll
        for (int chunk = 0; chunk < chunks; chunk++) {
            const float4* at = mine + size_t(group * chunks + chunk) * WARP * 2;
            const float4 upper = __ldcs(at), lower = __ldcs(at + 1);
            vr[chunk] = Parts<4>({upper.x, upper.z, lower.x, lower.z});
            vi[chunk] = Parts<4>({upper.y, upper.w, lower.y, lower.w});
        }
        float2* there[2];
        #pragma unroll
        for (int h = 0; h < 2; h++) {
            const int row = group * ROWS + lane / 4 + 8 * h;
            there[h] = row < rows.count ? out + rows(row) + lane % 4 * 4 : nullptr;
        }
        #pragma unroll
        for (int pair = 0; pair < tiles / 2; pair++) {
            const int rhs = pair * 16 + lane % 4 * 4;
            float before_re[2][4], before_im[2][4];
            #pragma unroll
            for (int h = 0; h < 2; h++)
                #pragma unroll
                for (int i = 0; i < 4; i += width)
                    if (there[h] && rhs + i < N)
                        unpack(*reinterpret_cast<const Vector<float, width>*>(there[h] + pair * 16 + i),
                               before_re[h] + i, before_im[h] + i);
            float re[2][4] = {}, im[2][4] = {};
            #pragma unroll
            for (int chunk = 0; chunk < chunks; chunk++)
                #pragma unroll
                for (int tile = 0; tile < 2; tile++) {
                    const uint4* at = coarse + (chunk * tiles + pair * 2 + tile) * 2 * WARP + lane;
                    const Parts<2> r = parts(at[0]), m = parts(at[WARP]);
                    multiply_add(re[tile], vr[chunk], r);
                    multiply_add(re[tile], vi[chunk], m.negative());
                    multiply_add(im[tile], vr[chunk], m);
                    multiply_add(im[tile], vi[chunk], r);
                }
            #pragma unroll
            for (int h = 0; h < 2; h++) {
                #pragma unroll
                for (int i = 0; i < 4; i++) {
                    const int c = 2 * h + i / 2, tile = i % 2;
                    before_re[h][i] += re[tile][c], before_im[h][i] += im[tile][c];
                }
                #pragma unroll
                for (int i = 0; i < 4; i += width)
                    if (there[h] && rhs + i < N)
                        pack(*reinterpret_cast<Vector<float, width>*>(there[h] + pair * 16 + i), before_re[h] + i,
                             before_im[h] + i);
            }
        }
    }
}
