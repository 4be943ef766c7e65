// The two staples in the mu-nu plane around the link (x, mu), for every site of both parities:
//   out(x) += c [ U_nu(x) F(x+nu) U_nu(x+mu)^dag + U_nu(x-nu)^dag F(x-nu) U_nu(x-nu+mu) ],
// with F any field that goes from x to x+mu as a link does. All are [parity][site][3][3].

#include "complex.cuh"

template <int X, int Y, int Z, int T> struct Point {
    static constexpr int EXTENTS[4] = {X, Y, Z, T}, SITES = X * Y * Z * T / 2;
    int coordinates[4], parity;

    // Point number i of [parity][site].
    static __device__ __forceinline__ Point of(unsigned i) {
        Point p;
        p.parity = i / SITES, i %= SITES;
        const int half_x = i % (X / 2);
        i /= X / 2;
        p.coordinates[1] = i % Y, i /= Y;
        p.coordinates[2] = i % Z;
        p.coordinates[3] = i / Z;
        p.coordinates[0] = 2 * half_x + ((p.coordinates[1] + p.coordinates[2] + p.coordinates[3] + p.parity) & 1);
        return p;
    }

    __device__ __forceinline__ Point moved(int mu, int step) const {
        Point p = *this;
        #pragma unroll
        for (int d = 0; d < 4; d++)
            if (d == mu) p.coordinates[d] = (p.coordinates[d] + step + EXTENTS[d]) % EXTENTS[d];
        p.parity ^= 1;
        return p;
    }

    __device__ __forceinline__ size_t number() const {
        const auto& c = coordinates;
        return size_t(parity) * SITES + ((unsigned(c[3]) * Z + c[2]) * Y + c[1]) * (X / 2) + c[0] / 2;
    }
};

template <class Real> struct Matrix {
    Real re[3][3], im[3][3];
};

template <class Real> __device__ __forceinline__ Matrix<Real> load(const Complex<Real>* field, size_t site) {
    Matrix<Real> m;
    #pragma unroll
    for (int i = 0; i < 9; i++) unpack(field[site * 9 + i], &m.re[i / 3][i % 3], &m.im[i / 3][i % 3]);
    return m;
}

template <class Real> __device__ __forceinline__ Matrix<Real> dagger(const Matrix<Real>& m) {
    Matrix<Real> d;
    #pragma unroll
    for (int i = 0; i < 3; i++)
        #pragma unroll
        for (int j = 0; j < 3; j++) d.re[i][j] = m.re[j][i], d.im[i][j] = -m.im[j][i];
    return d;
}

template <class Real>
__device__ __forceinline__ Matrix<Real> operator*(const Matrix<Real>& a, const Matrix<Real>& b) {
    Matrix<Real> product = {};
    #pragma unroll
    for (int i = 0; i < 3; i++)
        #pragma unroll
        for (int j = 0; j < 3; j++)
            #pragma unroll
            for (int k = 0; k < 3; k++) {
                product.re[i][j] += a.re[i][k] * b.re[k][j] - a.im[i][k] * b.im[k][j];
                product.im[i][j] += a.re[i][k] * b.im[k][j] + a.im[i][k] * b.re[k][j];
            }
    return product;
}

template <class Real, int X, int Y, int Z, int T>
__global__ void __launch_bounds__(128, 3)
    add_staple(Complex<Real>* out, const Complex<Real>* __restrict__ field, const Complex<Real>* __restrict__ links,
               int mu, int nu, Real coefficient) {
    using Point = Point<X, Y, Z, T>;
    const unsigned i = blockIdx.x * 128u + threadIdx.x;
    if (i >= 2u * Point::SITES) return;
    const Point x = Point::of(i), down = x.moved(nu, -1);
    const Matrix<Real> upper = load<Real>(links, i) * load<Real>(field, x.moved(nu, 1).number()) *
                               dagger(load<Real>(links, x.moved(mu, 1).number()));
    const Matrix<Real> lower = dagger(load<Real>(links, down.number())) * load<Real>(field, down.number()) *
                               load<Real>(links, down.moved(mu, 1).number());
    #pragma unroll
    for (int e = 0; e < 9; e++) {
        Complex<Real>& o = out[size_t(i) * 9 + e];
        o.x += coefficient * (upper.re[e / 3][e % 3] + lower.re[e / 3][e % 3]);
        o.y += coefficient * (upper.im[e / 3][e % 3] + lower.im[e / 3][e % 3]);
    }
}
