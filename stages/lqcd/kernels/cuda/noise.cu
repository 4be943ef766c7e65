// Noise vectors [site][3][N] on the sites of one parity, a thread per site and vector; kinds and counters:
// stages/lqcd/noise/vectors.py.

#include "complex.cuh"
#include "point.cuh"
#include "philox.cuh"
#include "share.cuh"

// out = value(site, column, color) for every colour of the site and the vector (column) of this thread.
template <class Real, int X, int Y, int Z, int T, class Value>
__device__ __forceinline__ void each_colour(Complex<Real>* out, int n, int parity, Value value) {
    using Point = Point<X, Y, Z, T>;
    const size_t i = first_row() + size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    const unsigned site = i / n, column = i % n;
    if (i >= end_row((long long)Point::SITES * n)) return;
    const unsigned number = Point::of(parity * Point::SITES + site).lexicographic();
    #pragma unroll
    for (int color = 0; color < 3; color++) {
        const double2 v = value(number, column, color);
        out[(size_t(site) * 3 + color) * n + column] = {Real(v.x), Real(v.y)};
    }
}

// The leading `bits` bits of word c name the entry of colour c.
template <class Real, int X, int Y, int Z, int T>
__global__ void __launch_bounds__(256)
    noise_roots(Complex<Real>* out, const unsigned* indices, const double2* __restrict__ table, int bits, int n,
                int parity, unsigned key0, unsigned key1) {
    each_colour<Real, X, Y, Z, T>(out, n, parity, [=](unsigned site, unsigned column, int color) {
        const Words words = philox4x32({site, 0, 0, indices[column]}, key0, key1);
        return __ldg(table + (words.w[color] >> (32 - bits)));
    });
}

// Box-Muller: sqrt(-log u) exp(2 pi i v), u and v from components 2c and 2c + 1 of colour c.
template <class Real, int X, int Y, int Z, int T>
__global__ void __launch_bounds__(256)
    noise_gaussian(Complex<Real>* out, const unsigned* indices, int n, int parity, unsigned key0, unsigned key1) {
    each_colour<Real, X, Y, Z, T>(out, n, parity, [=](unsigned site, unsigned column, int color) {
        const Words words = philox4x32({site, 0, unsigned(color / 2), indices[column]}, key0, key1);
        const double u = (words.w[2 * color % 4] + 0.5) * 0x1p-32, v = (words.w[2 * color % 4 + 1] + 0.5) * 0x1p-32;
        const double radius = sqrt(-log(u)), angle = 2.0 * 3.141592653589793 * v;
        double sine, cosine;
        sincos(angle, &sine, &cosine);
        return double2{radius * cosine, radius * sine};
    });
}
