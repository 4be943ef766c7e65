// Long links c U_mu(x) U_mu(x+mu) U_mu(x+2mu) of every site and direction; fields are [mu][parity][site][3][3].

#include "point.cuh"
#include "warp_matrices.cuh"

template <class Real, int X, int Y, int Z, int T>
__global__ void __launch_bounds__(64, 6)
    long_links(Complex<Real>* __restrict__ out, const Complex<Real>* __restrict__ links, Real coefficient) {
    using Point = Point<X, Y, Z, T>;
    constexpr size_t direction = size_t(2) * Point::SITES * 9;
    __shared__ __align__(16) Complex<Real> memory[2 * 3 * WARP_ELEMENTS];
    Complex<Real>* tiles = memory + threadIdx.x / WARP * (3 * WARP_ELEMENTS);
    const int mu = blockIdx.y;
    const Run run = Run::of(2u * Point::SITES);
    if (run.count == 0) return;

    Point x = Point::of(run.number);
    #pragma unroll
    for (int hop = 0; hop < 3; hop++) {
        fetch<Real>(tiles + hop * WARP_ELEMENTS, links + mu * direction, x.number());
        x = x.moved(mu, 1);
    }
    commit_copies();
    arrived<0>();
    const Matrix<Real> product = mine<Real>(tiles) * mine<Real>(tiles + WARP_ELEMENTS) * mine<Real>(tiles + 2 * WARP_ELEMENTS);
    Complex<Real>* target = out + mu * direction + size_t(run.first) * 9;
    spread<Real>(tiles, scaled(coefficient, product), run.count,
                 [&](int element, Complex<Real> value) { target[element] = value; });
}
