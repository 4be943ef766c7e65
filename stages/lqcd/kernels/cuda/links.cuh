// The links of a block's sites on their way from global to shared memory, as tiles hold them or as their fields lie.
// Both give, in shared memory, matrices of Real; `d` is a direction. All threads of a block call fetch once, which
// starts the copies, and arrive<MU> before the first use of MU's links.

#include "async_copy.cuh"
#include "color_vectors.cuh"
#include "geometry.cuh"

// Links of ELEMENTS complex numbers: [tile][d][site in tile][ELEMENTS], the same without the tile in shared memory.
// THREADS threads with SITES sites work together: a block, or a warp on sites of its own, which needs no barrier.
template <class Real, int ELEMENTS, int DIRECTIONS, int TILE_SITES, int SITES, int THREADS> struct LinkRuns {
    static constexpr bool IN_FIELDS = false, OWN = false;
    static constexpr int LINK = ELEMENTS * sizeof(Complex<Real>);
    static constexpr int PER_MU = DIRECTIONS == 16 ? 4 : 2, MUS = DIRECTIONS / PER_MU;
    static constexpr int TILE_BYTES = DIRECTIONS * TILE_SITES * LINK, SHARED_BYTES = DIRECTIONS * SITES * LINK;
    unsigned char* shared;

    static __device__ __forceinline__ int thread() { return THREADS == 32 ? threadIdx.x % 32 : threadIdx.x; }

    static __device__ __forceinline__ void synchronise() {
        if constexpr (THREADS == 32) __syncwarp();
        else __syncthreads();
    }

    // `tile` is the tile's place in memory, `first` the first of the sites in it.
    __device__ __forceinline__ void fetch(const unsigned char* tile, int first) {
        constexpr int bytes = SITES * LINK, tile_bytes = TILE_SITES * LINK;
        constexpr int unit = bytes % 16 == 0 && tile_bytes % 16 == 0 ? 16 : 8;
        const auto policy = evict_first();
        const int mine = thread() * unit;
        const unsigned to = opaque_shared_address(shared + mine);
        const unsigned char* from = tile + first * LINK + mine;
        #pragma unroll
        for (int mu = 0; mu < MUS; mu++) {
            #pragma unroll
            for (int i = 0; i < PER_MU * bytes; i += THREADS * unit) {
                const int at = mu * PER_MU * bytes + i, skipped = (at + mine) / bytes * (tile_bytes - bytes);
                if (i + THREADS * unit <= PER_MU * bytes || i + mine < PER_MU * bytes)
                    copy_async_with<unit>(policy, to + at, from + at + skipped);
            }
            commit_copies();
        }
    }

    // LATER: groups of copies that were committed after these.
    template <int MU, int LATER = 0> __device__ __forceinline__ void arrive() const {
        wait_for_copies<MUS - 1 - MU + LATER>();
        synchronise();
    }

    // Where the numbers of a link begin.
    __device__ __forceinline__ Complex<Real>* elements(int d, int site) const {
        return reinterpret_cast<Complex<Real>*>(shared) + site * ELEMENTS + d * (SITES * ELEMENTS);
    }
};

// 18 reals a link: the matrix.
template <class Real, int DIRECTIONS, int TILE_SITES, int SITES, int THREADS>
struct Links18 : LinkRuns<Real, 9, DIRECTIONS, TILE_SITES, SITES, THREADS> {
    template <bool BACK> __device__ __forceinline__ Matrix<Real> link(int d, int site) const {
        return {this->elements(d, site)};
    }
};

// The matrix -conj(m) of a matrix m that lies transposed: -m^dag.
template <class Real> struct MinusConjugate {
    Matrix<Real> m;
    __device__ __forceinline__ Complex<Real> at(int i, int j) const {
        const Complex<Real> e = m.at(i, j);
        return {-e.x, e.y};
    }
};

// Links as their fields lie, one hop and three, [mu][parity][site][3][3]: each once, where the tiles have it forward
// and backward. Elements come one by one, those of a backward link transposed.
template <class Real, int DIRECTIONS, int TILE_SITES, int SITES, int THREADS>
struct LinksInFields : LinkRuns<Real, 9, DIRECTIONS, TILE_SITES, SITES, THREADS> {
    static_assert(DIRECTIONS != 6, "all directions");
    using Runs = LinkRuns<Real, 9, DIRECTIONS, TILE_SITES, SITES, THREADS>;
    static constexpr bool IN_FIELDS = true;
    static constexpr int UNIT = sizeof(Complex<Real>);

    // `corner` is the first site of the tile.
    template <class L, class Tile>
    __device__ __forceinline__ void fetch(const unsigned char* one_hop, const unsigned char* three_hops, Site corner,
                                          int first, int parity) {
        const auto policy = evict_first();
        const unsigned to = opaque_shared_address(this->shared + Runs::thread() * UNIT);
        fetch_along<L, Tile, 0>(policy, to, one_hop, three_hops, corner, first, parity);
        fetch_along<L, Tile, 1>(policy, to, one_hop, three_hops, corner, first, parity);
        fetch_along<L, Tile, 2>(policy, to, one_hop, three_hops, corner, first, parity);
        fetch_along<L, Tile, 3>(policy, to, one_hop, three_hops, corner, first, parity);
    }

    template <bool BACK> __device__ __forceinline__ auto link(int d, int site) const {
        const Matrix<Real> m{this->elements(d, site)};
        if constexpr (BACK) return MinusConjugate<Real>{m};
        else return m;
    }

  private:
    template <class L, class Tile, int MU>
    __device__ __forceinline__ void fetch_along(unsigned long long policy, unsigned to, const unsigned char* one_hop,
                                                const unsigned char* three_hops, Site corner, int first, int parity) {
        copy<L, Tile, MU, 0>(policy, to + at(MU, 0), one_hop, corner, first, parity);
        copy<L, Tile, MU, -1>(policy, to + at(MU, 1), one_hop, corner, first, 1 - parity);
        if constexpr (DIRECTIONS == 16) {
            copy<L, Tile, MU, 0>(policy, to + at(MU, 2), three_hops, corner, first, parity);
            copy<L, Tile, MU, -3>(policy, to + at(MU, 3), three_hops, corner, first, 1 - parity);
        }
        commit_copies();
    }

    // Bytes in shared memory before the links of a direction.
    static constexpr __device__ int at(int mu, int in_mu) { return (mu * Runs::PER_MU + in_mu) * SITES * Runs::LINK; }

    // The links at STEP hops along MU from the block's sites; `parity` is that of the sites where they begin.
    template <class L, class Tile, int MU, int STEP>
    static __device__ __forceinline__ void copy(unsigned long long policy, unsigned to, const unsigned char* field,
                                                Site corner, int first, int parity) {
        field += size_t(2 * MU + parity) * L::SITES * Runs::LINK;
        #pragma unroll
        for (int i = 0; i < SITES * 9; i += THREADS) {
            const int mine = i + Runs::thread(), element = mine % 9;
            if (i + THREADS > SITES * 9 && mine >= SITES * 9) break;
            Site site = site_of<Tile>(first + mine / 9);
            site.half_x += corner.half_x, site.y += corner.y, site.z += corner.z, site.t += corner.t;
            const unsigned start = STEP ? neighbour<L, MU, STEP ? STEP : 1>(site, 1 - parity) : number<L>(site);
            const int from = STEP ? element % 3 * 3 + element / 3 : element;
            copy_async_with<UNIT>(policy, to + i * UNIT, field + (size_t(start) * 9 + from) * UNIT);
        }
    }
};
