// Links into the sites of one parity, [tile][direction][site in tile][3][3] in the precision of `out`: X_mu(x) forward
// and -X_mu(x - mu)^dag backward, with three hops in place of one for the long links; the order of the directions is
// that of stages/lqcd/kernels/directions.py. Tiles and sites in a tile number x fastest; tiles of one site are sites in
// their order. blockIdx.y is the direction; fat and long are [mu][parity][site][3][3].
//
// Those of a Wilson-type operator are weighted and +U^dag backward, and may be kept as their first two rows (su3_links.cuh).

#include "point.cuh"
#include "traversal.cuh"
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

// Largest deviation of f conj(row 0 x row 1) from the third row, relative to the length of the first; of zeros NaN.
__device__ __forceinline__ double distance_from_third_row(const Matrix<double>& m, double f) {
    double norm2 = 0, largest = 0;
    #pragma unroll
    for (int j = 0; j < 3; j++) {
        const double2 third = cross(m, j);
        largest = fmax(largest, hypot(f * third.x - m.re[2][j], -f * third.y - m.im[2][j]));
        norm2 += m.re[0][j] * m.re[0][j] + m.im[0][j] * m.im[0][j];
    }
    return f == f && largest < 1e300 ? largest / sqrt(norm2) : 1e300;
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

// numbers: weights[4], then s / w of the links along each mu, and of those that cross the lattice's edge. unfit is set
// where a third row does not follow from the others to `limit` times the length of the first.
template <class Real, int X, int Y, int Z, int T, class Tile, int ROWS>
__global__ void __launch_bounds__(64, 8)
    weighted_links(Complex<Real>* __restrict__ out, const double2* __restrict__ links, const double* __restrict__ numbers,
                   int parity, double limit, int* unfit) {
    using Point = Point<X, Y, Z, T>;
    __shared__ __align__(16) double2 memory[2 * WARP_ELEMENTS];
    double2* tile = memory + threadIdx.x / WARP * WARP_ELEMENTS;
    const int d = blockIdx.y, mu = d / 2;
    const bool back = d % 2;
    const Run run = Run::of(Point::SITES);
    if (run.count == 0) return;

    Point start = Point::of(parity * Point::SITES + run.number);
    if (back) start = start.moved(mu, -1);
    fetch<double>(tile, links + size_t(mu) * 2 * Point::SITES * 9, start.number());
    commit_copies();
    arrived<0>();
    const Matrix<double> weighted = scaled(numbers[mu], mine<double>(tile)), link = back ? dagger(weighted) : weighted;
    if constexpr (ROWS == 2) {
        bool at_edge = false;
        #pragma unroll
        for (int i = 0; i < 4; i++) at_edge = at_edge || (i == mu && start.coordinates[i] == Point::EXTENTS[i] - 1);
        if (!(distance_from_third_row(link, numbers[(at_edge ? 8 : 4) + mu]) <= limit)) *unfit = 1;
    }
    spread<double>(tile, link, run.count, [=](int element, double2 value) {
        if (element % 9 >= 3 * ROWS) return;
        const size_t first = place<Extents<X, Y, Z, T>, Tile>(run.first + element / 9, gridDim.y);
        out[(first + size_t(d) * Tile::SITES) * (3 * ROWS) + element % 9] = {Real(value.x), Real(value.y)};
    });
}
