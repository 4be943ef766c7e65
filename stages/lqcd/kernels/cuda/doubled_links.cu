// Links into the sites of one parity, [tile][direction][site in tile][3][3] in the precision of `out`: X_mu(x) forward
// and -X_mu(x - mu)^dag backward, with three hops in place of one for the long links; the order of the directions is
// that of stages/lqcd/kernels/directions.py. Tiles and sites in a tile number x fastest; tiles of one site are sites in
// their order. blockIdx.y is the direction; fat and long are [mu][parity][site][3][3].

#include "complex.cuh"
#include "geometry.cuh"
#include "traversal.cuh"
#include "async_copy.cuh"
#include "point.cuh"
#include "matrix.cuh"
#include "warp_matrices.cuh"

// Place of a site's link among the links of all sites, for the first direction; directions are SITES apart.
template <class L, class Tile> __device__ __forceinline__ size_t place(unsigned number, int directions) {
    using Order = Traversal<L, Tile, L::Y / Tile::Y, L::Z / Tile::Z>;
    const Site s = site_of<L>(number);
    const Site tile = {s.half_x / Tile::HALF_X, s.y / Tile::Y, s.z / Tile::Z, s.t / Tile::T};
    const Site inside = {s.half_x % Tile::HALF_X, s.y % Tile::Y, s.z % Tile::Z, s.t % Tile::T};
    const int in_tile = ((inside.t * Tile::Z + inside.z) * Tile::Y + inside.y) * Tile::HALF_X + inside.half_x;
    return size_t(Order::number(tile)) * directions * Tile::SITES + in_tile;
}

template <class Real, int X, int Y, int Z, int T, class Tile>
__global__ void __launch_bounds__(64, 8)
    doubled_links(Complex<Real>* __restrict__ out, const double2* __restrict__ fat, const double2* __restrict__ longs,
                  int parity) {
    using Point = Point<X, Y, Z, T>;
    __shared__ __align__(16) double2 memory[2 * WARP_ELEMENTS];
    double2* tile = memory + threadIdx.x / WARP * WARP_ELEMENTS;
    const int d = blockIdx.y, hops = longs ? 1 + d % 4 / 2 * 2 : 1, mu = longs ? d / 4 : d / 2;
    const bool back = d % 2;
    const Run run = Run::of(Point::SITES);
    if (run.count == 0) return;

    Point x = Point::of(parity * Point::SITES + run.number);
    if (back)
        for (int hop = 0; hop < hops; hop++) x = x.moved(mu, -1);
    fetch<double>(tile, (hops == 3 ? longs : fat) + size_t(mu) * 2 * Point::SITES * 9, x.number());
    commit_copies();
    arrived<0>();
    const Matrix<double> link = mine<double>(tile);
    spread<double>(tile, back ? scaled(-1.0, dagger(link)) : link, run.count, [=](int element, double2 value) {
        const size_t first = place<Extents<X, Y, Z, T>, Tile>(run.first + element / 9, gridDim.y);
        out[(first + size_t(d) * Tile::SITES) * 9 + element % 9] = {Real(value.x), Real(value.y)};
    });
}
