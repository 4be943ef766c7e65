// Vector updates of batched conjugate gradients. A column that has converged keeps its bits, whatever the other operands
// hold.

#include "cg_coefficients.cuh"
#include "grid_sum.cuh"
#include "rows.cuh"

// x += alpha p; where open, p = r + beta p
template <class Real, int N, int GROUPS>
__global__ void __launch_bounds__(Columns<Real, N, GROUPS>::THREADS)
    cg_advance(RowVector<Real, N>* __restrict__ x, RowVector<Real, N>* __restrict__ p,
               const RowVector<Real, N>* __restrict__ r, double* numbers, long long rows) {
    using Columns = Columns<Real, N, GROUPS>;
    constexpr int width = Columns::WIDTH;
    const Coefficients<N> coefficients{numbers};
    Real alpha[width], beta[width];
    bool open[width];
    for (int w = 0; w < width; w++) {
        const int n = Columns::first_rhs() + w;
        alpha[w] = coefficients.alpha(n), beta[w] = coefficients.beta(n), open[w] = coefficients.open(n);
    }
    Columns::for_one(rows, [&](long long i) {
        Real xr[width], xi[width], pr[width], pi[width], rr[width], ri[width];
        unpack(x[i], xr, xi);
        unpack(p[i], pr, pi);
        unpack(r[i], rr, ri);
        #pragma unroll
        for (int w = 0; w < width; w++) {
            xr[w] = alpha[w] != 0 ? xr[w] + alpha[w] * pr[w] : xr[w];
            xi[w] = alpha[w] != 0 ? xi[w] + alpha[w] * pi[w] : xi[w];
            rr[w] = beta[w] != 0 ? rr[w] + beta[w] * pr[w] : rr[w];
            ri[w] = beta[w] != 0 ? ri[w] + beta[w] * pi[w] : ri[w];
            pr[w] = open[w] ? rr[w] : pr[w];
            pi[w] = open[w] ? ri[w] : pi[w];
        }
        pack(x[i], xr, xi);
        pack(p[i], pr, pi);
    });
}

// alpha = gamma / pap where the column moves, else 0; r -= alpha ap; then beta = |r|^2 / r2 and r2 = gamma = |r|^2.
// Every block reads r2, gamma and pap before it counts as finished, and the last one alone writes.
template <class Real, int N, int GROUPS>
__global__ void __launch_bounds__(Columns<Real, N, GROUPS>::THREADS, 1024 / Columns<Real, N, GROUPS>::THREADS)
    cg_residual(RowVector<Real, N>* __restrict__ r, const RowVector<Real, N>* __restrict__ ap, double* numbers,
                double* partials, unsigned* finished, long long rows) {
    using Columns = Columns<Real, N, GROUPS>;
    constexpr int width = Columns::WIDTH;
    __shared__ double scratch[width * Columns::THREADS / 2 + 1];
    const Coefficients<N> coefficients{numbers};
    Real alpha[width];
    for (int w = 0; w < width; w++) alpha[w] = coefficients.step(Columns::first_rhs() + w);

    double sum[width] = {};
    Columns::for_each<2>(rows, [&](long long i) {
        Real rr[width], ri[width], apr[width], api[width];
        unpack(r[i], rr, ri);
        unpack(ap[i], apr, api);
        #pragma unroll
        for (int w = 0; w < width; w++) {
            rr[w] = alpha[w] != 0 ? rr[w] - alpha[w] * apr[w] : rr[w];
            ri[w] = alpha[w] != 0 ? ri[w] - alpha[w] * api[w] : ri[w];
            sum[w] += double(rr[w]) * rr[w] + double(ri[w]) * ri[w];
        }
        pack(r[i], rr, ri);
    });
    if (!sum_over_grid<Columns::COUNT, GROUPS>(sum, scratch, {partials, finished})) return;
    for (int w = 0; w < width; w++) coefficients.finish(Columns::first_rhs() + w, sum[w]);
}
