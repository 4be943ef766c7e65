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

// A right-hand side is a row of a tile here, a vector a column: tile row g is right-hand side 2 g, row g + 8 is 2 g + 1.
// grid (groups of COLUMNS right-hand sides, 2 aggregates); WARPS warps share the rows of an aggregate.
template <int COMPONENTS, int K, int N, int COLUMNS, int WARPS>
__global__ void __launch_bounds__(WARPS* WARP)
    restrict_field(const float4* __restrict__ vectors, const int* __restrict__ sites, const float2* __restrict__ x,
                   float2* __restrict__ out, int sites_per_aggregate) {
    static_assert(COLUMNS <= 16, "one tile");
    constexpr int chunks = ceil_div(K, 8);
    extern __shared__ __align__(16) unsigned char shared[];
    float2* sums = reinterpret_cast<float2*>(shared);
    const unsigned block = block_of_share<2>(blockIdx.y);
    const Rows<COMPONENTS, N> rows = rows_of<COMPONENTS, N>(sites, sites_per_aggregate, block);
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, first = blockIdx.x * COLUMNS;
    const int steps = ceil_div(rows.count, TERMS);
    const float4* mine = vectors + size_t(block) * steps * chunks * WARP + lane;

    float re[chunks][4] = {}, im[chunks][4] = {};
    for (int step = warp; step < steps; step += WARPS) {
        float4 half[2];
        #pragma unroll
        for (int h = 0; h < 2; h++) {
            const int row = step * TERMS + lane % 4 + 4 * h, rhs = first + lane / 4 * 2;
            half[h] = row < rows.count ? load_pair<N>(x + rows(row), rhs) : float4{};
        }
        const Parts<4> xr({half[0].x, half[0].z, half[1].x, half[1].z});
        const Parts<4> xi({half[0].y, half[0].w, half[1].y, half[1].w});
        #pragma unroll
        for (int chunk = 0; chunk < chunks; chunk++) {
            const float4 v = __ldcs(mine + size_t(step * chunks + chunk) * WARP);
            const Parts<2> vr({v.x, v.z}), vi({v.y, v.w});
            multiply_add(re[chunk], xr, vr);
            multiply_add(re[chunk], xi, vi);
            multiply_add(im[chunk], xi, vr);
            multiply_add(im[chunk], xr, vi.negative());
        }
    }

    #pragma unroll
    for (int i = 0; i < chunks * 4; i++) {
        const int c = i % 4, chunk = i / 4;
        const int rhs = lane / 4 * 2 + c / 2, vector = chunk * 8 + lane % 4 * 2 + c % 2;
        if (rhs < COLUMNS && vector < K) sums[(warp * K + vector) * COLUMNS + rhs] = {re[chunk][c], im[chunk][c]};
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
