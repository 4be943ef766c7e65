// What the products with the Wilson operator share: a thread's sum over the neighbours of a site (wilson_dslash.cu).

#include "half_spinors.cuh"
#include "hermitian.cuh"
#include "su3_links.cuh"
#include "traversal.cuh"

// How fields are stored: as template arguments In and Out.
struct Whole {
    template <class Real, class Lanes> using Field = WholeSpinors<Real, Lanes>;
};
struct Half {
    template <class Real, class Lanes> using Field = HalfSpinors<Real, Lanes>;
};

// What clover matrices multiply; CLOVER of a kernel is that + 4 times their kind (hermitian.cuh).
constexpr int HOP_CLOVER = 1, DIAGONAL_CLOVER = 2;
template <int CLOVER> constexpr int PLACE_OF = CLOVER % 4;
template <int CLOVER> constexpr int KIND_OF = CLOVER / 4;

// Whether a hop leads over the edge of the lattice.
template <class L, int MU, int STEP> __device__ __forceinline__ bool at_edge(Site site, int parity) {
    if constexpr (MU == 0) return (2 * site.half_x + ((site.y + site.z + site.t + parity) & 1)) == (STEP > 0 ? L::X - 1 : 0);
    if constexpr (MU == 1) return site.y == (STEP > 0 ? L::Y - 1 : 0);
    if constexpr (MU == 2) return site.z == (STEP > 0 ? L::Z - 1 : 0);
    return site.t == (STEP > 0 ? L::T - 1 : 0);
}

// A thread's share of the work: the sum over neighbours of its site for its right-hand sides.
template <class L, class Links, class X, class Real, int SIGN, int LATER, int R> struct Gather {
    Site site;
    int parity, site_in_team, lane;
    X x;
    Links links;
    const Real* factors;
    Spinor<Real, R> sum;

    template <int MU, int STEP> __device__ __forceinline__ void hop() {
        constexpr int e = STEP > 0 ? -SIGN : SIGN;
        Spinor<Real, R> psi;
        HalfSpinor<Real, R> h;
        x.template load<ReadOften>(psi, neighbour<L, MU, STEP>(site, parity), lane);
        project<MU, e>(h, psi);
        carry<MU, e>(sum, links.link(2 * MU + (STEP < 0), site_in_team, factors, at_edge<L, MU, STEP>(site, parity)), h);
    }

    template <int MU> __device__ __forceinline__ void hops() {
        links.template arrive<MU, LATER>();
        hop<MU, +1>();
        hop<MU, -1>();
    }
};

template <class Tile> __device__ __forceinline__ Site site_in(Site tile, int i) {
    Site site = site_of<Tile>(i);
    site.half_x += tile.half_x * Tile::HALF_X;
    site.y += tile.y * Tile::Y;
    site.z += tile.z * Tile::Z;
    site.t += tile.t * Tile::T;
    return site;
}

// The matrices of a team's sites, from [site] to shared memory.
template <class L, class Tile, int SITES, int THREADS, int KIND, class Real>
__device__ __forceinline__ void fetch_clover(unsigned char* shared, const Real* clover, Site tile, int first, int thread) {
    constexpr int bytes = 2 * MATRIX_REALS<KIND> * sizeof(Real), pieces = bytes / 16;
    const auto policy = evict_first();
    const unsigned to = opaque_shared_address(shared + thread * 16);
    #pragma unroll
    for (int i = 0; i < SITES * pieces; i += THREADS)
        if (i + THREADS <= SITES * pieces || i + thread < SITES * pieces) {
            const int piece = i + thread;
            const unsigned site = number<L>(site_in<Tile>(tile, first + piece / pieces));
            const auto* from = reinterpret_cast<const unsigned char*>(clover) + size_t(site) * bytes;
            copy_async_with<16>(policy, to + i * 16, from + piece % pieces * 16);
        }
    commit_copies();
}

// The sum over the neighbours of a thread's site for its right-hand sides; matrix: the site's clover matrices.
template <class Real, int R> struct Gathered {
    Spinor<Real, R> sum;
    const Real* matrix;
    unsigned site;
    int lane;
};

template <class Real, class L, class Tile, template <class, int, int, int> class LinksOf, class In, int SIGN, int CLOVER,
          int N, int R, int SITES, int Y_CHUNK, int Z_CHUNK>
__device__ __forceinline__ Gathered<Real, R> gathered(const unsigned char* tiles, const Real* factors, const void* x,
                                                      const float* x_scales, const Real* clover, int parity) {
    constexpr int threads = SITES * (N / R), parts = Tile::SITES / SITES;
    using Lanes = Lanes<N, R, R>;
    using X = typename In::template Field<Real, Lanes>;
    // Threads that wait for each other: those of a warp where its sites are its own.
    constexpr bool warps = threads % 32 == 0 && 32 % Lanes::COUNT == 0;
    constexpr int team_threads = warps ? 32 : threads, team_sites = team_threads / Lanes::COUNT;
    using Links = LinksOf<Real, Tile::SITES, team_sites, team_threads>;
    using Order = Traversal<L, Tile, Y_CHUNK, Z_CHUNK>;
    static_assert(size_t(L::SITES) * 12 * N < (1ull << 32), "a field is indexed with 32 bits");
    extern __shared__ __align__(16) unsigned char shared[];

    const Site tile = Order::tile(blockIdx.x / parts);
    const int team = threadIdx.x / team_threads, first = blockIdx.x % parts * SITES + team * team_sites;
    constexpr int matrices_at = threads / team_threads * Links::SHARED_BYTES;
    constexpr int matrix_bytes = 2 * MATRIX_REALS<KIND_OF<CLOVER>> * sizeof(Real);
    unsigned char* const matrices = shared + matrices_at + team * team_sites * matrix_bytes;
    Links links{shared + team * Links::SHARED_BYTES};
    if constexpr (Links::IN_FIELDS) {
        const Site corner = {tile.half_x * Tile::HALF_X, tile.y * Tile::Y, tile.z * Tile::Z, tile.t * Tile::T};
        links.template fetch<L, Tile>(tiles, nullptr, corner, first, parity);
    } else links.fetch(tiles + size_t(Order::number(tile)) * Links::TILE_BYTES, first);
    if constexpr (CLOVER)
        fetch_clover<L, Tile, team_sites, team_threads, KIND_OF<CLOVER>>(matrices, clover, tile, first,
                                                                         Links::thread());

    const int site_in_team = Links::thread() / Lanes::COUNT, lane = threadIdx.x % Lanes::COUNT;
    const Site site = site_in<Tile>(tile, first + site_in_team);
    Gather<L, Links, X, Real, SIGN, CLOVER != 0, R> gather{site, parity, site_in_team, lane, X(x, x_scales), links, factors, {}};
    gather.template hops<0>();
    gather.template hops<1>();
    gather.template hops<2>();
    gather.template hops<3>();
    if constexpr (CLOVER) {
        wait_for_copies<0>();
        Links::synchronise();
    }
    const auto* matrix = reinterpret_cast<const Real*>(matrices + site_in_team * matrix_bytes);
    return {gather.sum, matrix, number<L>(site), lane};
}
