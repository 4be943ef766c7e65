// Sums of BiCGstab, and the coefficients that the last block to finish computes of them (`stages.lqcd.solvers.bicgstab`).
// Each sum is what lane_blas.cu computes.

#include "complex.cuh"
#include "rows.cuh"
#include "grid_sum.cuh"

// The rows of `BiCGstabCoefficients.numbers` and `.reals`.
template <int N> struct BiCGstabCoefficients {
    double2* numbers;
    double* reals;

    __device__ __forceinline__ double2& open(int n) const { return numbers[n]; }
    __device__ __forceinline__ double2& back(int n) const { return numbers[N + n]; }
    __device__ __forceinline__ double2& kept(int n) const { return numbers[2 * N + n]; }
    __device__ __forceinline__ double2& alpha(int n) const { return numbers[3 * N + n]; }
    __device__ __forceinline__ double2& omega(int n) const { return numbers[4 * N + n]; }
    __device__ __forceinline__ double2& minus_alpha(int n) const { return numbers[5 * N + n]; }
    __device__ __forceinline__ double2& rho(int n) const { return numbers[6 * N + n]; }
    __device__ __forceinline__ double2& beta(int n) const { return numbers[7 * N + n]; }
    __device__ __forceinline__ double2& sv(int n) const { return numbers[8 * N + n]; }

    __device__ __forceinline__ double& r2(int n) const { return reals[n]; }
    __device__ __forceinline__ double& angle2(int n) const { return reals[N + n]; }
    __device__ __forceinline__ double target2(int n) const { return reals[2 * N + n]; }
    __device__ __forceinline__ double shadow2(int n) const { return reals[3 * N + n]; }

    __device__ __forceinline__ bool active(int n) const { return r2(n) > target2(n); }
};

__device__ __forceinline__ bool is_zero(double2 a) { return a.x == 0 && a.y == 0; }
__device__ __forceinline__ double2 minus(double2 a) { return {-a.x, -a.y}; }
__device__ __forceinline__ double2 product(double2 a, double2 b) {
    return {a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x};
}
__device__ __forceinline__ double2 difference(double2 a, double2 b) {
    return {__dsub_rn(a.x, b.x), __dsub_rn(a.y, b.y)};
}

// a / b where that is asked for, zero elsewhere; scaled, so that no square underflows.
__device__ __forceinline__ double2 quotient(double2 a, double2 b, bool where) {
    if (!where) return {0, 0};
    const double scale = 1 / (abs(b.x) + abs(b.y));
    const double ar = a.x * scale, ai = a.y * scale, br = b.x * scale, bi = b.y * scale;
    const double inverse = 1 / (br * br + bi * bi);
    return {(ar * br + ai * bi) * inverse, (ai * br - ar * bi) * inverse};
}

// alpha = rho / s^H v.
template <class Real, int N, int GROUPS>
__global__ void __launch_bounds__(Columns<Real, N, GROUPS>::THREADS, 1024 / Columns<Real, N, GROUPS>::THREADS)
    bicgstab_alpha(const Vector<Real, vector_width<Real>(N, N)>* __restrict__ shadow,
                   const Vector<Real, vector_width<Real>(N, N)>* __restrict__ v, double2* numbers, double* reals,
                   double* partials, unsigned* finished, long long rows) {
    using Columns = Columns<Real, N, GROUPS>;
    constexpr int width = Columns::WIDTH;
    __shared__ double scratch[2 * width * Columns::THREADS / 2 + 1];
    double sum[2 * width] = {};
    Columns::template for_each<1>(rows, [&](long long i) {
        Real sr[width], si[width], vr[width], vi[width];
        unpack(shadow[i], sr, si);
        unpack(v[i], vr, vi);
        #pragma unroll
        for (int w = 0; w < width; w++) add_dot(sum + 2 * w, sr[w], si[w], vr[w], vi[w]);
    });
    if (!sum_over_grid<Columns::COUNT, GROUPS>(sum, scratch, {partials, finished})) return;
    const BiCGstabCoefficients<N> c{numbers, reals};
    for (int w = 0; w < width; w++) {
        const int n = Columns::first_rhs() + w;
        const double2 sv{sum[2 * w], sum[2 * w + 1]};
        c.sv(n) = sv;
        c.alpha(n) = quotient(c.rho(n), sv, c.active(n) && !is_zero(sv));
        c.minus_alpha(n) = minus(c.alpha(n));
    }
}

// omega = t^H r / |t|^2, rho = (rho - alpha s^H v) - omega s^H t, beta = (rho / rho before) (alpha / omega).
template <class Real, int N, int GROUPS>
__global__ void __launch_bounds__(Columns<Real, N, GROUPS>::THREADS, 1024 / Columns<Real, N, GROUPS>::THREADS)
    bicgstab_omega(const Vector<Real, vector_width<Real>(N, N)>* __restrict__ t,
                   const Vector<Real, vector_width<Real>(N, N)>* __restrict__ shadow,
                   const Vector<Real, vector_width<Real>(N, N)>* __restrict__ r, double2* numbers, double* reals,
                   double* partials, unsigned* finished, long long rows) {
    using Columns = Columns<Real, N, GROUPS>;
    constexpr int width = Columns::WIDTH;
    __shared__ double scratch[5 * width * Columns::THREADS / 2 + 1];
    double sum[5 * width] = {};
    Columns::template for_each<1>(rows, [&](long long i) {
        Real tr[width], ti[width], xr[width], xi[width];
        unpack(t[i], tr, ti);
        unpack(shadow[i], xr, xi);
        #pragma unroll
        for (int w = 0; w < width; w++) {
            sum[5 * w] += double(tr[w]) * tr[w] + double(ti[w]) * ti[w];
            add_dot(sum + 5 * w + 1, xr[w], xi[w], tr[w], ti[w]);
        }
        unpack(r[i], xr, xi);
        #pragma unroll
        for (int w = 0; w < width; w++) add_dot(sum + 5 * w + 3, tr[w], ti[w], xr[w], xi[w]);
    });
    if (!sum_over_grid<Columns::COUNT, GROUPS>(sum, scratch, {partials, finished})) return;
    const BiCGstabCoefficients<N> c{numbers, reals};
    for (int w = 0; w < width; w++) {
        const int n = Columns::first_rhs() + w;
        const double t2 = sum[5 * w];
        const double2 st{sum[5 * w + 1], sum[5 * w + 2]}, tr{sum[5 * w + 3], sum[5 * w + 4]};
        const double2 omega = quotient(tr, {t2, 0}, c.active(n) && t2 > 0);
        const double2 left = difference(c.rho(n), product(c.alpha(n), c.sv(n)));
        const double2 rho = difference(left, product(omega, st)), before = product(c.rho(n), omega);
        c.omega(n) = omega;
        c.beta(n) = quotient(product(rho, c.alpha(n)), before, c.active(n) && !is_zero(before));
        c.rho(n) = rho;
    }
}

// y += alpha p + omega r, r -= omega t, |r|^2; how far rho is from rounding, and the coefficients of the next direction.
template <class Real, int N, int GROUPS>
__global__ void __launch_bounds__(Columns<Real, N, GROUPS>::THREADS, 1024 / Columns<Real, N, GROUPS>::THREADS)
    bicgstab_residual(Vector<Real, vector_width<Real>(N, N)>* __restrict__ y,
                      const Vector<Real, vector_width<Real>(N, N)>* __restrict__ p,
                      Vector<Real, vector_width<Real>(N, N)>* __restrict__ r,
                      const Vector<Real, vector_width<Real>(N, N)>* __restrict__ t, double2* numbers, double* reals,
                      double* partials, unsigned* finished, long long rows) {
    using Columns = Columns<Real, N, GROUPS>;
    constexpr int width = Columns::WIDTH;
    __shared__ double scratch[width * Columns::THREADS / 2 + 1];
    const BiCGstabCoefficients<N> c{numbers, reals};
    Real ar[width], ai[width], wr[width], wi[width];
    for (int w = 0; w < width; w++) {
        const double2 alpha = c.alpha(Columns::first_rhs() + w), omega = c.omega(Columns::first_rhs() + w);
        ar[w] = Real(alpha.x), ai[w] = Real(alpha.y), wr[w] = Real(omega.x), wi[w] = Real(omega.y);
    }
    double sum[width] = {};
    Columns::template for_each<1>(rows, [&](long long i) {
        Real yr[width], yi[width], xr[width], xi[width], rr[width], ri[width];
        unpack(y[i], yr, yi);
        unpack(p[i], xr, xi);
        unpack(r[i], rr, ri);
        #pragma unroll
        for (int w = 0; w < width; w++) {
            yr[w] += ar[w] * xr[w];
            yr[w] -= ai[w] * xi[w];
            yi[w] += ar[w] * xi[w];
            yi[w] += ai[w] * xr[w];
            yr[w] += wr[w] * rr[w];
            yr[w] -= wi[w] * ri[w];
            yi[w] += wr[w] * ri[w];
            yi[w] += wi[w] * rr[w];
        }
        pack(y[i], yr, yi);
        unpack(t[i], xr, xi);
        #pragma unroll
        for (int w = 0; w < width; w++) {
            rr[w] -= wr[w] * xr[w];
            rr[w] += wi[w] * xi[w];
            ri[w] -= wr[w] * xi[w];
            ri[w] -= wi[w] * xr[w];
            sum[w] += double(rr[w]) * rr[w] + double(ri[w]) * ri[w];
        }
        pack(r[i], rr, ri);
    });
    if (!sum_over_grid<Columns::COUNT, GROUPS>(sum, scratch, {partials, finished})) return;
    for (int w = 0; w < width; w++) {
        const int n = Columns::first_rhs() + w;
        const double size = c.shadow2(n) * sum[w], distance = hypot(c.rho(n).x, c.rho(n).y);
        c.r2(n) = sum[w];
        c.angle2(n) = !is_zero(c.beta(n)) && size > 0 ? distance * distance / size : 0;
        const bool active = c.active(n);
        c.open(n) = {double(active), 0};
        c.back(n) = active ? product(minus(c.omega(n)), c.beta(n)) : double2{0, 0};
        c.kept(n) = active ? c.beta(n) : double2{1, 0};
    }
}
