// Field strength F = (Q - Q^dag) / 8 [site][3][3] with Q the four plaquettes of a plane that start and end at x, of the
// sites x of one parity, and the clover term, to which the products of F with spin matrices are added.

#include "point.cuh"
#include "warp_matrices.cuh"

template <class Real, int X, int Y, int Z, int T>
__global__ void __launch_bounds__(64)
    field_strength(Complex<Real>* out, const Complex<Real>* __restrict__ links, int parity, int mu, int nu) {
    using Point = Point<X, Y, Z, T>;
    __shared__ __align__(16) Complex<Real> memory[2 * WARP_ELEMENTS];
    Complex<Real>* tile = memory + threadIdx.x / WARP * WARP_ELEMENTS;
    const Run run = Run::of(Point::SITES);
    if (run.count == 0) return;

    // All lanes of a warp ask for a link together; their matrices come through shared memory.
    const auto link = [&](int direction, const Point& x) {
        __syncwarp();
        fetch<Real>(tile, links + size_t(direction) * 2 * Point::SITES * 9, x.number());
        commit_copies();
        arrived<0>();
        return mine<Real>(tile);
    };
    const Point x = Point::of(parity * Point::SITES + run.number), left = x.moved(mu, -1), below = x.moved(nu, -1), corner = left.moved(nu, -1);
    // products of three, one to the next, keep few matrices in registers
    Matrix<Real> leaf = link(mu, x);
    leaf = leaf * link(nu, x.moved(mu, 1));
    leaf = leaf * dagger(link(mu, x.moved(nu, 1)));
    Matrix<Real> q = leaf * dagger(link(nu, x));
    leaf = link(nu, x);
    leaf = leaf * dagger(link(mu, left.moved(nu, 1)));
    leaf = leaf * dagger(link(nu, left));
    q += leaf * link(mu, left);
    leaf = dagger(link(mu, left));
    leaf = leaf * dagger(link(nu, corner));
    leaf = leaf * link(mu, corner);
    q += leaf * link(nu, below);
    leaf = dagger(link(nu, below));
    leaf = leaf * link(mu, below);
    leaf = leaf * link(nu, below.moved(mu, 1));
    q += leaf * dagger(link(mu, x));

    Matrix<Real> f = scaled(Real(-0.125), dagger(q));
    f += scaled(Real(0.125), q);
    Complex<Real>* target = out + size_t(run.first) * 9;
    __syncwarp();
    spread<Real>(tile, f, run.count, [&](int element, Complex<Real> value) { target[element] = value; });
}

// term[site][chirality][3 r + a][3 s + b] += spins[chirality][r][s] strength[site][a][b]
template <class Real>
__global__ void __launch_bounds__(256)
    add_clover(Complex<Real>* term, const Complex<Real>* __restrict__ strength, const Complex<Real>* __restrict__ spins,
               unsigned long long elements) {
    const size_t stride = size_t(gridDim.x) * blockDim.x;
    const size_t first = first_row() + size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    for (size_t i = first; i < end_row(elements); i += stride) {
        const unsigned place = i % 72, chirality = place / 36, row = place / 6 % 6, column = place % 6;
        const Complex<Real> f = strength[i / 72 * 9 + row % 3 * 3 + column % 3];
        const Complex<Real> s = spins[chirality * 4 + row / 3 * 2 + column / 3];
        Complex<Real>& t = term[i];
        t = {t.x + s.x * f.x - s.y * f.y, t.y + s.x * f.y + s.y * f.x};
    }
}
