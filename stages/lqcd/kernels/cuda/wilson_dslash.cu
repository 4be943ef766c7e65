// Wilson dslash on one parity, many right-hand sides:
//   out(s) = a C' diagonal(s) + b C sum_mu [ (1 - SIGN gamma_mu) U_mu(s) x(s+mu)
//                                          + (1 + SIGN gamma_mu) U_mu(s-mu)^dag x(s-mu) ],
// directions d = 2 mu + hop; C and C' are one or the clover term's matrices (CLOVER).
//
// A block works on SITES sites of a tile and all N right-hand sides; a thread owns the 12 components of R right-hand
// sides of one site. It projects each neighbour to two spins as it reads it. Links come to shared memory as in the
// staggered dslash (links.cuh, su3_links.cuh: three forms), but each warp waits for those of its own sites alone where
// sites do not straddle warps; clover matrices follow them, one group more. x and out, and the diagonal as out, are
// complex numbers of Real, or 16-bit numbers with a scale (half_spinors.cuh; Real is then float).

#include "wilson_gather.cuh"

template <class Real, class L, class Tile, template <class, int, int, int> class LinksOf, class In, class Out,
          int SIGN, int CLOVER, int N, int R, int SITES, int MIN_BLOCKS, int Y_CHUNK, int Z_CHUNK>
__global__ void __launch_bounds__(SITES * (N / R), MIN_BLOCKS)
    wilson_dslash(const unsigned char* __restrict__ tiles, const Real* __restrict__ factors,
                  const void* __restrict__ x, const float* __restrict__ x_scales, const Real* __restrict__ clover,
                  const void* diagonal, const float* diagonal_scales, void* out, float* out_scales, Real a, Real b,
                  int parity) {
    using Result = typename Out::template Field<Real, Lanes<N, R, R>>;
    auto hops = gathered<Real, L, Tile, LinksOf, In, SIGN, CLOVER, N, R, SITES, Y_CHUNK, Z_CHUNK>(
        tiles, factors, x, x_scales, clover, parity);
    const unsigned at = hops.site;
    const int lane = hops.lane;
    #pragma unroll
    for (int chirality = 0; chirality < 2; chirality++) {
        HalfSpinor<Real, R> v = chiral(hops.sum, chirality), w = {};
        if (diagonal) Result(diagonal, diagonal_scales).template load<ReadOnce>(w, at, chirality, lane);
        const Real* matrix = hops.matrix + chirality * MATRIX_REALS<KIND_OF<CLOVER>>;
        if constexpr (PLACE_OF<CLOVER> == HOP_CLOVER) multiply_by<KIND_OF<CLOVER>>(matrix, v);
        if constexpr (PLACE_OF<CLOVER> == DIAGONAL_CLOVER) multiply_by<KIND_OF<CLOVER>>(matrix, w);
        combine(v, b, a, w);
        set_chiral(hops.sum, chirality, v);
    }
    Result(out, out_scales).store(hops.sum, at, lane);
}

// The term of one direction alone: a thread per site and right-hand side, in the order of the packed links.
template <class Real, class L, class Tile, template <class, int, int, int> class LinksOf, int DIRECTION, int SIGN, int N>
__global__ void __launch_bounds__(128)
    wilson_hop(const unsigned char* __restrict__ tiles, const Real* __restrict__ factors, const void* __restrict__ x,
               void* out, int parity) {
    constexpr int mu = DIRECTION / 2, step = DIRECTION % 2 ? -1 : 1, e = -SIGN * step;
    using Field = WholeSpinors<Real, Lanes<N, 1, 1>>;
    using Links = LinksOf<Real, Tile::SITES, 1, 32>;
    using Grid = Extents<2 * L::HALF_X / Tile::HALF_X, L::Y / Tile::Y, L::Z / Tile::Z, L::T / Tile::T>;
    const unsigned i = unsigned(first_row()) + blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= unsigned(end_row(unsigned(L::SITES) * N))) return;
    const unsigned lane = i % N, site_in_tile = i / N % Tile::SITES, tile = i / N / Tile::SITES;
    const Site site = site_in<Tile>(site_of<Grid>(tile), site_in_tile);
    Spinor<Real, 1> psi, sum = {};
    HalfSpinor<Real, 1> h;
    Field(x, nullptr).template load<ReadOften>(psi, neighbour<L, mu, step>(site, parity), lane);
    project<mu, e>(h, psi);
    const size_t link = (size_t(tile) * 8 + DIRECTION) * Tile::SITES + site_in_tile;
    const auto* elements = reinterpret_cast<const Complex<Real>*>(tiles + link * Links::LINK);
    carry<mu, e>(sum, Links::view(elements, factors, DIRECTION, at_edge<L, mu, step>(site, parity)), h);
    Field(out, nullptr).store(sum, number<L>(site), lane);
}
