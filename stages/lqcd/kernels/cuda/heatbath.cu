// Heat bath and over-relaxation of the links of one direction and parity, in place. A link is multiplied in each of its
// three SU(2) subgroups in turn by the new element for the SU(2) part of U S^dag, S the sum of its six staples.
// Conventions, random numbers and sources: stages/lqcd/kernels/cpu/heatbath.py. Links are [mu][parity][site][3][3].

#include "philox.cuh"
#include "point.cuh"
#include "warp_matrices.cuh"

constexpr double PI = 3.141592653589793;

// (a, b) stands for ((a, b), (-b^*, a^*)), an element of SU(2) times a number >= 0.
struct Pair {
    double2 a, b;
};

__device__ __forceinline__ double2 times(double2 a, double2 b) {
    return {a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x};
}
__device__ __forceinline__ double2 conj(double2 a) { return {a.x, -a.y}; }
__device__ __forceinline__ double2 plus(double2 a, double2 b) { return {a.x + b.x, a.y + b.y}; }
__device__ __forceinline__ double2 minus(double2 a, double2 b) { return {a.x - b.x, a.y - b.y}; }

__device__ __forceinline__ Pair product(Pair p, Pair q) {
    return {minus(times(p.a, q.a), times(p.b, conj(q.b))), plus(times(p.a, q.b), times(p.b, conj(q.a)))};
}

// p^dag / scale
__device__ __forceinline__ Pair dagger_over(Pair p, double scale) {
    return {{p.a.x / scale, -p.a.y / scale}, {-p.b.x / scale, -p.b.y / scale}};
}

// Determinant, |a|^2 + |b|^2.
__device__ __forceinline__ double square(Pair p) {
    return p.a.x * p.a.x + p.a.y * p.a.y + p.b.x * p.b.x + p.b.y * p.b.y;
}

// What makes the random numbers of one link and subgroup.
struct Draws {
    unsigned site, sweep, update, key0, key1;

    // Numbers of (0, 1), multiples of 2^-33; the third word's top bit is in no counter of the noise vectors.
    __device__ __forceinline__ void uniforms(unsigned attempt, double (&r)[4]) const {
        const Words words = philox4x32({site, sweep, (1u << 31) | update, attempt}, key0, key1);
        #pragma unroll
        for (int i = 0; i < 4; i++) r[i] = (words.w[i] + 0.5) * 0x1p-32;
    }
};

// x = 1 - h0 for h0 in [-1, 1] of the density sqrt(1 - h0^2) exp(alpha h0): Kennedy and Pendleton, and where they
// rarely accept, at small alpha, by rejection from the uniform density.
__device__ __forceinline__ double kennedy_pendleton(double alpha, const Draws& draws) {
    for (unsigned attempt = 0;; attempt++) {
        double r[4], x, acceptance;
        draws.uniforms(attempt, r);
        if (alpha > 1) {
            const double cosine = cos(2 * PI * r[1]);
            x = -(log(r[0]) + cosine * cosine * log(r[2])) / alpha;
            acceptance = 1 - 0.5 * x;
        } else {
            x = 2 * r[0];
            acceptance = x * (2 - x) * exp(-2 * alpha * x);
        }
        if (!(r[3] * r[3] > acceptance)) return x;  // a NaN is accepted: it must not loop for ever
    }
}

// g of SU(2) with the density exp(weight Re tr (g part)).
__device__ __forceinline__ Pair drawn(Pair part, double weight, const Draws& draws) {
    const double norm = sqrt(square(part));
    const double x = kennedy_pendleton(2 * weight * norm, draws);
    double r[4], sine, cosine;
    draws.uniforms(~0u, r);
    const double length = sqrt(x * (2 - x)), transverse = 2 * length * sqrt(r[0] * (1 - r[0]));
    sincos(2 * PI * r[1], &sine, &cosine);
    return product({{1 - x, length * (1 - 2 * r[0])}, {transverse * cosine, transverse * sine}}, dagger_over(part, norm));
}

// g = (part^dag)^2 / |part|^2, for which Re tr (g part) = Re tr part.
__device__ __forceinline__ Pair reflected(Pair part) {
    return product(dagger_over(part, 1), dagger_over(part, square(part)));
}

// Rows I and J of m times g from the left.
template <int I, int J> __device__ __forceinline__ void multiply(Pair g, Matrix<double>& m) {
    #pragma unroll
    for (int k = 0; k < 3; k++) {
        const double2 upper = {m.re[I][k], m.im[I][k]}, lower = {m.re[J][k], m.im[J][k]};
        const double2 i = plus(times(g.a, upper), times(g.b, lower));
        const double2 j = minus(times(conj(g.a), lower), times(conj(g.b), upper));
        m.re[I][k] = i.x, m.im[I][k] = i.y, m.re[J][k] = j.x, m.im[J][k] = j.y;
    }
}

// New link and new U S^dag after an update in the subgroup of rows I and J.
template <int I, int J>
__device__ __forceinline__ void update(Matrix<double>& link, Matrix<double>& r, bool reflect, double weight, Draws draws) {
    const Pair part = {{0.5 * (r.re[I][I] + r.re[J][J]), 0.5 * (r.im[I][I] - r.im[J][J])},
                       {0.5 * (r.re[I][J] - r.re[J][I]), 0.5 * (r.im[I][J] + r.im[J][I])}};
    draws.update += I + J - 1;
    const Pair g = reflect ? reflected(part) : drawn(part, weight, draws);
    multiply<I, J>(g, link);
    multiply<I, J>(g, r);
}

template <int X, int Y, int Z, int T>
__global__ void __launch_bounds__(64, 4)
    update_links(double2* links, int mu, int parity, int reflect, double weight, unsigned key0, unsigned key1,
                 unsigned sweep) {
    using Point = Point<X, Y, Z, T>;
    constexpr size_t direction = size_t(2) * Point::SITES * 9;
    extern __shared__ __align__(16) unsigned char memory[];
    double2* tiles = reinterpret_cast<double2*>(memory) + threadIdx.x / WARP * (6 * WARP_ELEMENTS);
    const auto tile = [&](int slot) { return tiles + slot * WARP_ELEMENTS; };
    const Run run = Run::of(Point::SITES);
    if (run.count == 0) return;
    const Point x = Point::of(parity * Point::SITES + run.number), side = x.moved(mu, 1);
    const double2* mine_mu = links + mu * direction;

    // The staple above in slots 0 to 2 and the one below in slots 3 to 5, each on its way while the other is summed.
    const auto fetch_above = [&](int n) {
        const int nu = n + (n >= mu);
        const double2* other = links + nu * direction;
        fetch<double>(tile(0), other, x.number());
        fetch<double>(tile(1), mine_mu, x.moved(nu, 1).number());
        fetch<double>(tile(2), other, side.number());
        commit_copies();
    };
    const auto fetch_below = [&](int n) {
        const int nu = n + (n >= mu);
        const double2* other = links + nu * direction;
        const Point down = x.moved(nu, -1);
        fetch<double>(tile(3), other, down.number());
        fetch<double>(tile(4), mine_mu, down.number());
        fetch<double>(tile(5), other, side.moved(nu, -1).number());
        commit_copies();
    };
    Matrix<double> staples = {};
    fetch_above(0);
    #pragma unroll 1
    for (int n = 0; n < 3; n++) {
        fetch_below(n);
        arrived<1>();
        staples += mine<double>(tile(0)) * mine<double>(tile(1)) * dagger(mine<double>(tile(2)));
        __syncwarp();
        if (n < 2)
            fetch_above(n + 1);
        else {
            fetch<double>(tile(0), mine_mu, x.number());
            commit_copies();
        }
        arrived<1>();
        staples += dagger(mine<double>(tile(3))) * mine<double>(tile(4)) * mine<double>(tile(5));
        __syncwarp();
    }
    arrived<0>();
    Matrix<double> link = mine<double>(tile(0)), r = link * dagger(staples);
    const Draws draws = {x.lexicographic(), sweep, 3u * mu, key0, key1};
    update<0, 1>(link, r, reflect, weight, draws);
    update<0, 2>(link, r, reflect, weight, draws);
    update<1, 2>(link, r, reflect, weight, draws);
    double2* target = links + mu * direction + (size_t(parity) * Point::SITES + run.first) * 9;
    spread<double>(tile(0), in_su3(link), run.count, [&](int element, double2 value) { target[element] = value; });
}
