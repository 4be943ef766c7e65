// Coarse links of the Wilson operator: P^H H P for the part H of the operator that hops forward in one direction, and
// for its local part, of all aggregates at once, without a field in between.
//
// P is K orthonormal vectors of an aggregate and chirality, V [aggregate][chirality][site of it][6][K]. A block has an
// aggregate. It takes SITES sites at a time: V(s) and W(s), U V(s + mu) or A V(s), go to shared memory, where warps
// multiply them on tensor cores. With the projector 1 - gamma_mu the columns of one chirality, W_c, meet the rows of
// both: rows i < K those of V_c, the others those of V_{1 - c} with spins and signs of gamma_mu. Sums over sites whose
// hop stays in the aggregate and over those whose hop leaves it are taken one after the other.

#include "async_copy.cuh"
#include "complex.cuh"
#include "tensor_cores.cuh"
#include "share.cuh"

constexpr int SITES = 16, HALF = 6, PARTS = 2, LOCAL = 4;

struct Lattice {
    int x, y, z, t;

    __device__ __forceinline__ int half() const { return x / 2 * y * z * t; }
};

// Coordinates of a site, the even ones numbered first.
struct Place {
    int at[4];

    __device__ __forceinline__ Place(const Lattice& l, int site) {
        const int parity = site >= l.half(), rest = site - parity * l.half(), row = rest / (l.x / 2);
        at[1] = row % l.y, at[2] = row / l.y % l.z, at[3] = row / l.y / l.z;
        at[0] = rest % (l.x / 2) * 2 + (parity + at[1] + at[2] + at[3]) % 2;
    }

    __device__ __forceinline__ int site(const Lattice& l) const {
        const int parity = (at[0] + at[1] + at[2] + at[3]) % 2;
        return parity * l.half() + at[0] / 2 + l.x / 2 * (at[1] + l.y * (at[2] + l.z * at[3]));
    }
};

// What chirality 1 - c of a component of chirality c is under gamma_mu: another spin in x and y, a sign in y and z.
template <int MU> __device__ __forceinline__ int turned(int component) {
    return MU < 2 ? (component + 3) % 6 : component;
}
template <int MU> __device__ __forceinline__ bool negative(int component) {
    return (MU == 1 || MU == 2) && component >= 3;
}

// The factor common to all components of -gamma_mu, from chirality c.
template <int MU> __device__ __forceinline__ float2 turn(float2 v, int c) {
    const float sign = c ? -1.f : 1.f;
    if (MU == 0 || MU == 2) return {-sign * v.y, sign * v.x};
    if (MU == 1) return {sign * v.x, sign * v.y};
    return {-v.x, -v.y};
}

template <int K> struct Stage {
    static constexpr int PITCH = K + 4, ROWS_OF = SITES * HALF;
    float2 v[2][ROWS_OF][PITCH], w[2][ROWS_OF][PITCH];
    float matrices[SITES][72];
};

// inside [aggregate][2 K][2 K]; leaving [aggregate][8][2 K][2 K], of which direction 2 MU is written; cut: extent of an
// aggregate in mu; links of this direction [site][3][3]; even, odd: A of the sites of a parity (hermitian.cuh).
template <int K, int MU>
__global__ void __launch_bounds__(8 * PARTS * K, K <= 24 ? 2 : 1)
    wilson_galerkin(const float2* __restrict__ vectors, const int* __restrict__ sites, const int* __restrict__ places,
                    const double2* __restrict__ links, const float* __restrict__ even, const float* __restrict__ odd,
                    float2* __restrict__ inside, float2* __restrict__ leaving, float factor, int per_aggregate, int cut,
                    int x, int y, int z, int t_extent) {
    const Lattice lattice{x, y, z, t_extent};
    using Stage = Stage<K>;
    constexpr int tiles = K / 8, warps = 2 * tiles * PARTS, THREADS = warps * WARP, pairs = K / 2, count = tiles * 4;
    constexpr int spins_of = SITES * 4 * pairs / THREADS, loads = SITES * 2 * HALF * pairs / THREADS;
    static_assert(SITES * 4 * pairs % THREADS == 0 && SITES * HALF % (TERMS * PARTS) == 0, "whole rounds");
    extern __shared__ __align__(16) unsigned char shared[];
    Stage& stage = *reinterpret_cast<Stage*>(shared);
    float2* sums = reinterpret_cast<float2*>(shared);
    int* list = reinterpret_cast<int*>(shared + max(sizeof(Stage), warps * count * WARP * sizeof(float2)));
    int* beyond = list + per_aggregate;
    __shared__ int counts[warps];
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
    const int chirality = warp % 2, m = warp / 2 % tiles, part = warp / 2 / tiles;
    const size_t aggregate = block_of_share<1>(blockIdx.x);
    const int* own_sites = sites + aggregate * per_aggregate;
    const float2* own = vectors + aggregate * 2 * per_aggregate * HALF * K;
    const int staying = MU == LOCAL ? per_aggregate : per_aggregate - per_aggregate / cut;

    // places of the aggregate, those whose hop stays in it first, and where their neighbours' chirality 0 lies
    int before = 0;
    for (int first = 0; first < per_aggregate; first += THREADS) {
        const int place = first + threadIdx.x;
        bool stays = false, exists = place < per_aggregate;
        int there = 0;
        if (exists && MU != LOCAL) {
            Place at(lattice, own_sites[place]);
            const int extents[4] = {lattice.x, lattice.y, lattice.z, lattice.t};
            stays = at.at[MU % 4] % cut != cut - 1;
            at.at[MU % 4] = (at.at[MU % 4] + 1) % extents[MU % 4];
            there = places[at.site(lattice)];
        } else
            stays = exists;
        const unsigned staying_here = __ballot_sync(~0u, stays);
        if (lane == 0) counts[warp] = __popc(staying_here);
        __syncthreads();
        int ahead = before + __popc(staying_here & (1u << lane) - 1), all = 0;
        for (int w = 0; w < warps; w++) {
            if (w < warp) ahead += counts[w];
            all += counts[w];
        }
        const int to = stays ? ahead : staying + place - ahead;
        if (exists) list[to] = place, beyond[to] = there + there / per_aggregate * per_aggregate;
        before += all;
        __syncthreads();
    }

    for (int leaves = 0; leaves < (MU == LOCAL ? 1 : 2); leaves++) {
        const int begin = leaves ? staying : 0, end = leaves ? per_aggregate : staying;
        float re[tiles][4] = {}, im[tiles][4] = {};
        for (int first = begin; first < end; first += SITES) {
            float4 moved[spins_of][3];
            if constexpr (MU != LOCAL) {
                #pragma unroll
                for (int k = 0; k < spins_of; k++) {
                    const int i = threadIdx.x + k * THREADS, pair = i % pairs, spin = i / pairs % 4, s = i / pairs / 4;
                    const int there = first + s < end ? beyond[first + s] : 0;
                    const size_t row = size_t(there + spin / 2 * per_aggregate) * HALF + spin % 2 * 3;
                    const float2* from = vectors + row * K + pair * 2;
                    #pragma unroll
                    for (int a = 0; a < 3; a++) moved[k][a] = *reinterpret_cast<const float4*>(from + a * K);
                }
            }
            #pragma unroll 1
            for (int k = 0; k < loads; k++) {
                const int i = threadIdx.x + k * THREADS, pair = i % pairs;
                const int row = i / pairs % (SITES * HALF), c = i / pairs / (SITES * HALF);
                const int s = first + row / HALF, place = s < end ? list[s] : 0;
                const float2* from = own + ((size_t(c) * per_aggregate + place) * HALF + row % HALF) * K + pair * 2;
                copy_async<16>(&stage.v[c][row][pair * 2], from, s < end ? 16 : 0);
            }
            commit_copies();
            if constexpr (MU == LOCAL) {
                for (int i = threadIdx.x; i < SITES * 72; i += THREADS) {
                    const int s = first + i / 72;
                    float value = 0;
                    if (s < end) {
                        const int site = own_sites[list[s]], half = lattice.half();
                        value = (site < half ? even + size_t(site) * 72 : odd + size_t(site - half) * 72)[i % 72];
                    }
                    stage.matrices[i / 72][i % 72] = value;
                }
            } else if (threadIdx.x < SITES * 9) {
                const int s = first + threadIdx.x / 9, i = threadIdx.x % 9;
                double2 u = {};
                if (s < end) u = links[size_t(own_sites[list[s]]) * 9 + i];
                float* to = &stage.matrices[threadIdx.x / 9][2 * i];
                to[0] = u.x, to[1] = u.y;
            }
            wait_for_copies<0>();
            __syncthreads();
            if constexpr (MU == LOCAL) {
                for (int i = threadIdx.x; i < SITES * 2 * K; i += THREADS) {
                    const int column = i % K, c = i / K % 2, s = i / K / 2;
                    const float* m = stage.matrices[s] + c * 36;
                    float2 v[HALF], w[HALF];
                    #pragma unroll
                    for (int a = 0; a < HALF; a++) {
                        v[a] = stage.v[c][s * HALF + a][column];
                        w[a] = {m[a] * v[a].x, m[a] * v[a].y};
                    }
                    #pragma unroll
                    for (int a = 1; a < HALF; a++)
                        #pragma unroll
                        for (int b = 0; b < a; b++) {
                            const float er = m[6 + a * (a - 1) + 2 * b], ei = m[7 + a * (a - 1) + 2 * b];
                            w[a].x += er * v[b].x - ei * v[b].y, w[a].y += er * v[b].y + ei * v[b].x;
                            w[b].x += er * v[a].x + ei * v[a].y, w[b].y += er * v[a].y - ei * v[a].x;
                        }
                    #pragma unroll
                    for (int a = 0; a < HALF; a++) stage.w[c][s * HALF + a][column] = w[a];
                }
            } else {
                #pragma unroll
                for (int k = 0; k < spins_of; k++) {
                    const int i = threadIdx.x + k * THREADS, pair = i % pairs, spin = i / pairs % 4, s = i / pairs / 4;
                    const float* u = stage.matrices[s];
                    #pragma unroll
                    for (int a = 0; a < 3; a++) {
                        float4 w = {};
                        #pragma unroll
                        for (int b = 0; b < 3; b++) {
                            const float ur = u[6 * a + 2 * b], ui = u[6 * a + 2 * b + 1];
                            const float4 v = moved[k][b];
                            w.x += ur * v.x - ui * v.y, w.y += ur * v.y + ui * v.x;
                            w.z += ur * v.z - ui * v.w, w.w += ur * v.w + ui * v.z;
                        }
                        *reinterpret_cast<float4*>(&stage.w[spin / 2][s * HALF + spin % 2 * 3 + a][pair * 2]) = w;
                    }
                }
            }
            __syncthreads();
            #pragma unroll 1
            for (int step = part; step < SITES * HALF / TERMS; step += PARTS) {
                unsigned ar[4], ai[4];
                #pragma unroll
                for (int i = 0; i < 4; i++) {
                    const int block = 2 * m + i % 2, term = step * TERMS + t + i / 2 * 4, component = term % HALF;
                    const bool same = block < tiles;
                    const int row = same ? term : term - component + turned<MU>(component);
                    const float2 v = stage.v[same ? chirality : 1 - chirality][row][block % tiles * 8 + g];
                    const float sign = !same && negative<MU>(component) ? -1.f : 1.f;
                    ar[i] = tf32(sign * v.x), ai[i] = tf32(sign * v.y);
                }
                #pragma unroll
                for (int n = 0; n < tiles; n++) {
                    unsigned br[2], bi[2], minus[2];
                    #pragma unroll
                    for (int half = 0; half < 2; half++) {
                        const float2 w = stage.w[chirality][step * TERMS + t + 4 * half][n * 8 + g];
                        br[half] = tf32(w.x), bi[half] = tf32(w.y), minus[half] = br[half] ^ SIGN;
                    }
                    multiply_add(re[n], ar, br);
                    multiply_add(im[n], ar, bi);
                    multiply_add(re[n], ai, bi);
                    multiply_add(im[n], ai, minus);
                }
            }
            __syncthreads();
        }

        #pragma unroll
        for (int e = 0; e < count; e++) sums[(warp * count + e) * WARP + lane] = {re[e / 4][e % 4], im[e / 4][e % 4]};
        __syncthreads();
        float2* out = leaves ? leaving + (aggregate * 8 + 2 * MU) * (4 * K * K) : inside + aggregate * (4 * K * K);
        for (int i = threadIdx.x; i < 2 * tiles * count * WARP; i += THREADS) {
            const int l = i % WARP, e = i / WARP % count, c = i / WARP / count % 2, tile = i / WARP / count / 2;
            float2 total = {};
            #pragma unroll
            for (int p = 0; p < PARTS; p++) {
                const float2 other = sums[p * (2 * tiles * count * WARP) + i];
                total.x += other.x, total.y += other.y;
            }
            const int block = 2 * tile + e / 2 % 2, column = c * K + e / 4 * 8 + l % 4 * 2 + e % 2;
            const bool same = block < tiles;
            const int row = (same ? c : 1 - c) * K + block % tiles * 8 + l / 4;
            if (!same) total = MU == LOCAL ? float2{} : turn<MU>(total, c);
            out[row * 2 * K + column] = {factor * total.x, factor * total.y};
        }
        __syncthreads();
    }
}

// places[s]: where a site lies in its aggregate, aggregate per_aggregate + place.
__global__ void places_of_sites(const int* __restrict__ sites, int* __restrict__ places, int count) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) places[sites[i]] = i;
}
