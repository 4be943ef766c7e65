// Staggered dslash on one parity, many right-hand sides:
//   out(s) = a diagonal(s) + b sum_d links(s, d) x(neighbour(s, d)),
// 16 directions (fat and long links, d = 4 mu + 2 hop + sign), 8 (naive, d = 2 mu + sign) or 6 (without t).
//
// A block works on SITES sites of a tile and all N right-hand sides; a thread owns the 3 colours of R right-hand
// sides of one site (color_vectors.cuh). Right-hand sides are the fastest index, so that the N / R lanes of a site
// read and write contiguous memory. The block brings all its links to shared memory at the start, one group per mu,
// and waits for each group only when it is due (links.cuh: two forms). Links are read once per application and
// leave L2 first; what L2 should keep is x, and the order in which blocks visit the tiles (traversal.cuh) keeps
// neighbours in t within its reach.
//
// x, with it the diagonal, and out are complex numbers of Real, or in 16 bytes each (short_field.cuh; Real is float). With
// DOTS the block also leaves its share of Re conj(diagonal) out for each right-hand side in block_sums.

#include "links.cuh"
#include "own_links.cuh"
#include "short_field.cuh"
#include "site_sums.cuh"
#include "traversal.cuh"

// How fields are stored: as template arguments In and Out.
struct Whole {
    static constexpr bool SHORT = false;
    template <class Real, class Lanes> using Field = WholeField<Real, Lanes>;
};
template <class Code> struct Short {
    static constexpr bool SHORT = true;
    template <class Real, class Lanes> using Field = ShortField<Code, Lanes>;
};

// A thread's share of the work: the sum over neighbours of its site for its right-hand sides.
template <class L, class Links, class X, class Real, int DIRECTIONS, int R> struct Gather {
    Site site;
    int parity, site_in_block, lane;
    X x;
    Links links;
    ColorVectors<Real, R> sum;

    template <int MU, int STEP> __device__ __forceinline__ void hop(int direction) {
        ColorVectors<Real, R> v;
        x.template load<ReadOften>(v, neighbour<L, MU, STEP>(site, parity), lane);
        multiply_add(sum, links.template link<(STEP < 0)>(direction, site_in_block), v);
    }

    // All hops along MU, once the links of this direction have arrived.
    template <int MU> __device__ __forceinline__ void hops() {
        constexpr int first = MU * Links::PER_MU;
        links.template arrive<MU>();
        hop<MU, +1>(first);
        hop<MU, -1>(first + 1);
        if constexpr (DIRECTIONS == 16) {
            hop<MU, +3>(first + 2);
            hop<MU, -3>(first + 3);
        }
    }
};

// three_hops is that of links in their fields, with the field of one hop in the place of tiles, and null for others. scale
// is that of own_links.cuh.
template <class Real, class L, class Tile, template <class, int, int, int, int> class LinksOf, class In, class Out,
          int DIRECTIONS, int N, int R, int SITES, int MIN_BLOCKS, int Y_CHUNK, int Z_CHUNK, bool DOTS>
__global__ void __launch_bounds__(SITES * (N / R), MIN_BLOCKS)
    hisq_dslash(const unsigned char* __restrict__ tiles, const unsigned char* __restrict__ three_hops,
                const void* __restrict__ x, const void* diagonal, void* out, double* block_sums, Real a, Real b, int parity,
                Real scale) {
    constexpr int threads = SITES * (N / R), parts = Tile::SITES / SITES;
    using Lanes = Lanes<N, R, In::SHORT ? 1 : vector_width<Real>(N, R)>;
    using X = typename In::template Field<Real, Lanes>;
    using Links = LinksOf<Real, DIRECTIONS, Tile::SITES, SITES, threads>;
    using Order = Traversal<L, Tile, Y_CHUNK, Z_CHUNK>;
    static_assert(size_t(L::SITES) * 3 * Lanes::N / Lanes::CHUNK < (1ull << 32), "a field is indexed with 32 bits");
    extern __shared__ __align__(16) unsigned char shared[];

    const Site tile = Order::tile(blockIdx.x / parts);
    const Site corner = {tile.half_x * Tile::HALF_X, tile.y * Tile::Y, tile.z * Tile::Z, tile.t * Tile::T};
    const int first = blockIdx.x % parts * SITES;
    const int site_in_block = threadIdx.x / Lanes::COUNT, lane = threadIdx.x % Lanes::COUNT;
    Links links;
    if constexpr (Links::OWN) {
        links.fetch(tiles + size_t(Order::number(tile)) * Links::TILE_BYTES, first + site_in_block, scale);
    } else {
        links.shared = shared;
        if constexpr (Links::IN_FIELDS) links.template fetch<L, Tile>(tiles, three_hops, corner, first, parity);
        else links.fetch(tiles + size_t(Order::number(tile)) * Links::TILE_BYTES, first);
    }

    Site site = site_of<Tile>(first + site_in_block);
    site.half_x += corner.half_x;
    site.y += corner.y;
    site.z += corner.z;
    site.t += corner.t;

    Gather<L, Links, X, Real, DIRECTIONS, R> gather{site, parity, site_in_block, lane, X(x), links, {}};
    gather.template hops<0>();
    gather.template hops<1>();
    gather.template hops<2>();
    if constexpr (DIRECTIONS != 6) gather.template hops<3>();

    const unsigned at = number<L>(site);
    ColorVectors<Real, R> w = {};
    if (diagonal) X(diagonal).template load<ReadOnce>(w, at, lane);
    combine(gather.sum, b, a, w);
    typename Out::template Field<Real, Lanes>(out).store(gather.sum, at, lane);
    if constexpr (DOTS) {
        using Sums = SiteSums<SITES, Lanes::COUNT, Lanes::CHUNKS, Lanes::CHUNK>;
        double products[R];
        dots(products, w, gather.sum);
        double* row = block_sums + size_t(blockIdx.x) * N;
        if constexpr (Links::OWN) {
            __shared__ double scratch[Sums::SCRATCH_BYTES / 8];
            Sums::write(products, scratch, row);
        } else {
            static_assert(Sums::SCRATCH_BYTES <= Links::SHARED_BYTES, "the sums take the links' place");
            __syncthreads();
            Sums::write(products, reinterpret_cast<double*>(shared), row);
        }
    }
}
