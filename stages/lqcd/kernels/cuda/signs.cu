// Signs of links [mu][parity][site][3][3], thread after thread an element: out = sign * links; out may be links. With
// half the points of a direction, those from `first` on, links are those of one parity. Devices share the points of each
// direction and parity.

#include "complex.cuh"
#include "point.cuh"
#include "share.cuh"

template <class Real, int X, int Y, int Z, int T, class Negative>
__device__ __forceinline__ void multiply(Complex<Real>* out, const Complex<Real>* links, unsigned first,
                                         unsigned points, Negative negative) {
    using Point = Point<X, Y, Z, T>;
    const size_t direction = size_t(9) * points, end = size_t(9) * segment_end(points);
    const int mu = blockIdx.y;
    for (size_t i = size_t(9) * segment_start(points) + blockIdx.x * blockDim.x + threadIdx.x; i < end;
         i += gridDim.x * blockDim.x) {
        const size_t element = mu * direction + i;
        const Complex<Real> value = links[element];
        const Real sign = negative(mu, Point::of(first + i / 9)) ? -1 : 1;
        out[element] = {sign * value.x, sign * value.y};
    }
}

// MILC's phases: eta_x = (-1)^t, eta_y = (-1)^(t+x), eta_z = (-1)^(t+x+y), eta_t = 1.
template <class Real, int X, int Y, int Z, int T>
__global__ void __launch_bounds__(256)
    staggered_phases(Complex<Real>* out, const Complex<Real>* links, unsigned first, unsigned points) {
    multiply<Real, X, Y, Z, T>(out, links, first, points, [](int mu, const Point<X, Y, Z, T>& x) {
        const int sum = (mu < 3) * x.coordinates[3] + (mu == 1 || mu == 2) * x.coordinates[0] + (mu == 2) * x.coordinates[1];
        return sum & 1;
    });
}

// -1 on the links that leave the last slice of each direction whose bit is set in `directions`.
template <class Real, int X, int Y, int Z, int T>
__global__ void __launch_bounds__(256)
    boundary_signs(Complex<Real>* out, const Complex<Real>* links, unsigned first, unsigned points,
                   unsigned directions) {
    multiply<Real, X, Y, Z, T>(out, links, first, points, [=](int mu, const Point<X, Y, Z, T>& x) {
        bool last = false;
        #pragma unroll
        for (int d = 0; d < 4; d++) last = last || (d == mu && x.coordinates[d] == x.EXTENTS[d] - 1);
        return last && (directions >> mu & 1);
    });
}
