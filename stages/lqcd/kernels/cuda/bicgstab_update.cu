// Sums of BiCGstab, and the coefficients that the last block to finish computes of them (`stages.lqcd.solvers.bicgstab`).
// Each sum is what lane_blas.cu computes.

#include "bicgstab_coefficients.cuh"
#include "grid_sum.cuh"
#include "rows.cuh"

// alpha = rho / s^H v.
template <class Real, int N, int GROUPS>
__global__ void __launch_bounds__(Columns<Real, N, GROUPS>::THREADS, 1024 / Columns<Real, N, GROUPS>::THREADS)
    bicgstab_alpha(const RowVector<Real, N>* __restrict__ shadow, const RowVector<Real, N>* __restrict__ v,
                   double2* numbers, double* reals, double* partials, unsigned* finished, long long rows) {
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
    for (int w = 0; w < width; w++) give_alpha(c, Columns::first_rhs() + w, {sum[2 * w], sum[2 * w + 1]});
}

// omega = t^H r / |t|^2, rho = (rho - alpha s^H v) - omega s^H t, beta = (rho / rho before) (alpha / omega).
template <class Real, int N, int GROUPS>
__global__ void __launch_bounds__(Columns<Real, N, GROUPS>::THREADS, 1024 / Columns<Real, N, GROUPS>::THREADS)
    bicgstab_omega(const RowVector<Real, N>* __restrict__ t, const RowVector<Real, N>* __restrict__ shadow,
                   const RowVector<Real, N>* __restrict__ r, double2* numbers, double* reals, double* partials,
                   unsigned* finished, long long rows) {
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
        const double2 st{sum[5 * w + 1], sum[5 * w + 2]}, tr{sum[5 * w + 3], sum[5 * w + 4]};
        give_omega(c, Columns::first_rhs() + w, sum[5 * w], st, tr);
    }
}

// y += alpha p + omega r, r -= omega t, |r|^2; how far rho is from rounding, and the coefficients of the next direction.
template <class Real, int N, int GROUPS>
__global__ void __launch_bounds__(Columns<Real, N, GROUPS>::THREADS, 1024 / Columns<Real, N, GROUPS>::THREADS)
    bicgstab_residual(RowVector<Real, N>* __restrict__ y, const RowVector<Real, N>* __restrict__ p,
                      RowVector<Real, N>* __restrict__ r, const RowVector<Real, N>* __restrict__ t, double2* numbers,
                      double* reals, double* partials, unsigned* finished, long long rows) {
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
    for (int w = 0; w < width; w++) give_direction(c, Columns::first_rhs() + w, sum[w]);
}
