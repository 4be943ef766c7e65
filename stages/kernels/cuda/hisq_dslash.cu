// Staggered dslash on one parity, many right-hand sides:
//   out(s) = a diagonal(s) + b sum_d links(s, d) x(neighbour(s, d)),
// 16 directions (fat and long links, d = 4 mu + 2 hop + sign) or 8 (naive, d = 2 mu + sign).
//
// A block works on SITES sites of a tile and all N right-hand sides; a thread owns the 3 colours of R right-hand
// sides of one site. Right-hand sides are the fastest index, so that the N / R lanes of a site read and write
// contiguous memory. Links lie as [tile][direction][site in tile][3][3]; a block issues the copies of all its
// links to shared memory at the start, one group per mu, and waits for each group only when it is due. They are
// read once per application and leave L2 first; what L2 should keep is x, and the order in which blocks visit the
// tiles (t after chunks of z and y) keeps neighbours in t within its reach.
//
// With DOTS the block also leaves its share of Re conj(diagonal) out for each right-hand side in block_sums.

#include "complex.cuh"
#include "geometry.cuh"
#include "async_copy.cuh"
#include "site_sums.cuh"

template <int X_, int Y_, int Z_, int T_> struct Tile {
    static constexpr int HALF_X = X_, Y = Y_, Z = Z_, T = T_;
    static constexpr int SITES = X_ * Y_ * Z_ * T_;
};

// Visits the tiles of a lattice: x fastest, then y and z within a chunk, then t, then the chunks of y and z.
template <class L, class Tile, int Y_CHUNK, int Z_CHUNK> struct Traversal {
    static constexpr int X = L::HALF_X / Tile::HALF_X, Y = L::Y / Tile::Y, Z = L::Z / Tile::Z, T = L::T / Tile::T;

    static __device__ __forceinline__ Site tile(unsigned step) {
        Site tile;
        tile.half_x = step % X, step /= X;
        tile.y = step % Y_CHUNK, step /= Y_CHUNK;
        tile.z = step % Z_CHUNK, step /= Z_CHUNK;
        tile.t = step % T, step /= T;
        tile.y += step % (Y / Y_CHUNK) * Y_CHUNK, step /= Y / Y_CHUNK;
        tile.z += step * Z_CHUNK;
        return tile;
    }

    static __device__ __forceinline__ unsigned number(Site tile) {
        return ((unsigned(tile.t) * Z + tile.z) * Y + tile.y) * X + tile.half_x;
    }
};

// How the N right-hand sides of a site are spread over threads: vector k of a lane is k LANES vectors further on.
template <class Real, int N, int R> struct Lanes {
    static_assert(N % R == 0, "a thread owns R right-hand sides");
    static constexpr int COUNT = N / R;
    static constexpr int WIDTH = vector_width<Real>(N, R);
    static constexpr int VECTORS = R / WIDTH;
    static constexpr int PER_COLOR = N / WIDTH;
    static constexpr unsigned PER_SITE = 3 * PER_COLOR;
    using Vector = ::Vector<Real, WIDTH>;
};

template <class Real, int R> struct ColorVectors {
    Real re[3][R], im[3][R];
};

// Many threads read each value of x; the diagonal is read once, and it may be the output.
struct ReadOnly {
    template <class V> static __device__ __forceinline__ V read(const V* from) { return __ldg(from); }
};
struct ReadOnce {
    template <class V> static __device__ __forceinline__ V read(const V* from) { return __ldcs(from); }
};

template <class Lanes, class Access, class Real, int R>
__device__ __forceinline__ void load(ColorVectors<Real, R>& v, const typename Lanes::Vector* from) {
    #pragma unroll
    for (int c = 0; c < 3; c++)
        #pragma unroll
        for (int k = 0; k < Lanes::VECTORS; k++)
            unpack(Access::read(from + c * Lanes::PER_COLOR + k * Lanes::COUNT), &v.re[c][k * Lanes::WIDTH],
                   &v.im[c][k * Lanes::WIDTH]);
}

template <class Lanes, class Real, int R>
__device__ __forceinline__ void store(typename Lanes::Vector* to, const ColorVectors<Real, R>& v) {
    #pragma unroll
    for (int c = 0; c < 3; c++)
        #pragma unroll
        for (int k = 0; k < Lanes::VECTORS; k++) {
            typename Lanes::Vector packed;
            pack(packed, &v.re[c][k * Lanes::WIDTH], &v.im[c][k * Lanes::WIDTH]);
            __stcs(to + c * Lanes::PER_COLOR + k * Lanes::COUNT, packed);
        }
}

// v = a w + b v
template <class Real, int R>
__device__ __forceinline__ void combine(ColorVectors<Real, R>& v, Real b, Real a, const ColorVectors<Real, R>& w) {
    #pragma unroll
    for (int c = 0; c < 3; c++)
        #pragma unroll
        for (int r = 0; r < R; r++) {
            v.re[c][r] = a * w.re[c][r] + b * v.re[c][r];
            v.im[c][r] = a * w.im[c][r] + b * v.im[c][r];
        }
}

// Re conj(v) w of the site for each right-hand side; six products do not need double, the sum over sites does.
template <class Real, int R>
__device__ __forceinline__ void dots(double (&products)[R], const ColorVectors<Real, R>& v,
                                     const ColorVectors<Real, R>& w) {
    #pragma unroll
    for (int r = 0; r < R; r++) {
        Real sum = 0;
        #pragma unroll
        for (int c = 0; c < 3; c++) sum += v.re[c][r] * w.re[c][r] + v.im[c][r] * w.im[c][r];
        products[r] = sum;
    }
}

// sum += link v for each right-hand side
template <class Real, int R>
__device__ __forceinline__ void multiply_add(ColorVectors<Real, R>& sum, const Complex<Real>* link,
                                             const ColorVectors<Real, R>& v) {
    #pragma unroll
    for (int i = 0; i < 3; i++)
        #pragma unroll
        for (int j = 0; j < 3; j++) {
            const Complex<Real> u = link[3 * i + j];
            #pragma unroll
            for (int r = 0; r < R; r++) {
                sum.re[i][r] += u.x * v.re[j][r];
                sum.re[i][r] -= u.y * v.im[j][r];
                sum.im[i][r] += u.x * v.im[j][r];
                sum.im[i][r] += u.y * v.re[j][r];
            }
        }
}

// A thread's share of the work: its site and lane, and its site's links of direction 0 in shared memory (those of
// direction d are d SITES 9 further on).
template <class Real, class L, int DIRECTIONS, int N, int R, int SITES> struct Gather {
    using Lanes = ::Lanes<Real, N, R>;

    Site site;
    int parity, lane;
    const typename Lanes::Vector* x;
    const Complex<Real>* links;
    ColorVectors<Real, R> sum;

    template <int MU, int STEP> __device__ __forceinline__ void hop(int direction) {
        ColorVectors<Real, R> v;
        load<Lanes, ReadOnly>(v, x + (neighbour<L, MU, STEP>(site, parity) * Lanes::PER_SITE + lane));
        multiply_add(sum, links + direction * (SITES * 9), v);
    }

    // All hops along MU, once the links of this direction have arrived.
    template <int MU> __device__ __forceinline__ void hops() {
        constexpr int first = MU * (DIRECTIONS / 4);
        wait_for_copies<3 - MU>();
        __syncthreads();
        hop<MU, +1>(first);
        hop<MU, -1>(first + 1);
        if constexpr (DIRECTIONS == 16) {
            hop<MU, +3>(first + 2);
            hop<MU, -3>(first + 3);
        }
    }
};

// Start copying the links of SITES sites into shared memory as [direction][site][3][3], one group per mu.
template <class Real, int DIRECTIONS, int SITES, int TILE_SITES, int THREADS>
__device__ __forceinline__ void fetch_links(unsigned char* shared, const Complex<Real>* links) {
    constexpr int bytes = SITES * 9 * sizeof(Complex<Real>), tile_bytes = bytes / SITES * TILE_SITES;
    constexpr int unit = bytes % 16 == 0 && tile_bytes % 16 == 0 ? 16 : 8;
    constexpr int group = DIRECTIONS / 4;
    const auto policy = evict_first();
    const int mine = threadIdx.x * unit;
    const unsigned to = opaque_shared_address(shared + mine);
    const auto* from = reinterpret_cast<const unsigned char*>(links) + mine;
    #pragma unroll
    for (int mu = 0; mu < 4; mu++) {
        #pragma unroll
        for (int i = 0; i < group * bytes; i += THREADS * unit) {
            const int at = mu * group * bytes + i, skipped = (at + mine) / bytes * (tile_bytes - bytes);
            if (i + mine < group * bytes) copy_async_with<unit>(policy, to + at, from + at + skipped);
        }
        commit_copies();
    }
}

template <class Real, class L, class Tile, int DIRECTIONS, int N, int R, int SITES, int MIN_BLOCKS, int Y_CHUNK,
          int Z_CHUNK, bool DOTS>
__global__ void __launch_bounds__(SITES * (N / R), MIN_BLOCKS)
    hisq_dslash(const Complex<Real>* __restrict__ links, const typename Lanes<Real, N, R>::Vector* __restrict__ x,
                const typename Lanes<Real, N, R>::Vector* diagonal, typename Lanes<Real, N, R>::Vector* out,
                double* block_sums, Real a, Real b, int parity) {
    using Lanes = Lanes<Real, N, R>;
    using Order = Traversal<L, Tile, Y_CHUNK, Z_CHUNK>;
    constexpr int parts = Tile::SITES / SITES;
    static_assert(size_t(L::SITES) * Lanes::PER_SITE < (1ull << 32), "a field is indexed with 32 bits");
    extern __shared__ __align__(16) unsigned char shared[];

    const Site tile = Order::tile(blockIdx.x / parts);
    const int first = blockIdx.x % parts * SITES;
    fetch_links<Real, DIRECTIONS, SITES, Tile::SITES, SITES * Lanes::COUNT>(
        shared, links + (size_t(Order::number(tile)) * DIRECTIONS * Tile::SITES + first) * 9);

    const int site_in_block = threadIdx.x / Lanes::COUNT, lane = threadIdx.x % Lanes::COUNT;
    Site site = site_of<Tile>(first + site_in_block);
    site.half_x += tile.half_x * Tile::HALF_X;
    site.y += tile.y * Tile::Y;
    site.z += tile.z * Tile::Z;
    site.t += tile.t * Tile::T;

    const auto* site_links = reinterpret_cast<const Complex<Real>*>(shared) + site_in_block * 9;
    Gather<Real, L, DIRECTIONS, N, R, SITES> gather{site, parity, lane, x, site_links, {}};
    gather.template hops<0>();
    gather.template hops<1>();
    gather.template hops<2>();
    gather.template hops<3>();

    const unsigned at = number<L>(site) * Lanes::PER_SITE + lane;
    ColorVectors<Real, R> w = {};
    if (diagonal) load<Lanes, ReadOnce>(w, diagonal + at);
    combine(gather.sum, b, a, w);
    store<Lanes>(out + at, gather.sum);
    if constexpr (DOTS) {
        using Sums = SiteSums<SITES, Lanes::COUNT, Lanes::VECTORS, Lanes::WIDTH>;
        static_assert(Sums::SCRATCH_BYTES <= DIRECTIONS * SITES * 9 * sizeof(Complex<Real>), "takes the links' place");
        double products[R];
        dots(products, w, gather.sum);
        __syncthreads();
        Sums::write(products, reinterpret_cast<double*>(shared), block_sums + size_t(blockIdx.x) * N);
    }
}
