// The two staples in the mu-nu plane around the link (x, mu), for every site of both parities:
//   out(x) += c [ U_nu(x) F(x+nu) U_nu(x+mu)^dag + U_nu(x-nu)^dag F(x-nu) U_nu(x-nu+mu) ],
// with F any field that goes from x to x+mu as a link does. All are [parity][site][3][3].

#include "point.cuh"
#include "warp_matrices.cuh"

template <class Real, int X, int Y, int Z, int T>
__global__ void __launch_bounds__(64, 4)
    add_staple(Complex<Real>* out, const Complex<Real>* __restrict__ field, const Complex<Real>* __restrict__ links,
               int mu, int nu, Real coefficient) {
    using Point = Point<X, Y, Z, T>;
    extern __shared__ __align__(16) unsigned char memory[];
    Complex<Real>* tiles = reinterpret_cast<Complex<Real>*>(memory) + threadIdx.x / WARP * (6 * WARP_ELEMENTS);
    const auto tile = [&](int slot) { return tiles + slot * WARP_ELEMENTS; };
    const Run run = Run::of(2u * Point::SITES);
    if (run.count == 0) return;

    const Point x = Point::of(run.number), down = x.moved(nu, -1);
    fetch<Real>(tile(0), links, run.number);
    fetch<Real>(tile(1), field, x.moved(nu, 1).number());
    fetch<Real>(tile(2), links, x.moved(mu, 1).number());
    commit_copies();
    fetch<Real>(tile(3), links, down.number());
    fetch<Real>(tile(4), field, down.number());
    fetch<Real>(tile(5), links, down.moved(mu, 1).number());
    commit_copies();

    arrived<1>();
    Matrix<Real> sum = mine<Real>(tile(0)) * mine<Real>(tile(1)) * dagger(mine<Real>(tile(2)));
    arrived<0>();
    sum += dagger(mine<Real>(tile(3))) * mine<Real>(tile(4)) * mine<Real>(tile(5));
    Complex<Real>* target = out + size_t(run.first) * 9;
    spread<Real>(tile(0), sum, run.count, [&](int element, Complex<Real> value) {
        Complex<Real>& o = target[element];
        o = {o.x + coefficient * value.x, o.y + coefficient * value.y};
    });
}
