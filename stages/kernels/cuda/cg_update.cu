// Vector updates of batched conjugate gradients with one real coefficient per right-hand side, fused. Where a
// coefficient is zero the vectors keep their bits (or become r), whatever the other operands hold.

#include "complex.cuh"
#include "rows.cuh"
#include "block_sum.cuh"

// x += alpha p, r -= alpha ap, and partial sums of |r|^2 as [part][rhs].
template <class Real, int N, int GROUPS>
__global__ void __launch_bounds__(Columns<Real, N, GROUPS>::THREADS)
    cg_step(Vector<Real, vector_width<Real>(N, N)>* __restrict__ x,
            Vector<Real, vector_width<Real>(N, N)>* __restrict__ r,
            const Vector<Real, vector_width<Real>(N, N)>* __restrict__ p,
            const Vector<Real, vector_width<Real>(N, N)>* __restrict__ ap, const double* alphas, double* partials,
            long long rows) {
    using Columns = Columns<Real, N, GROUPS>;
    constexpr int width = Columns::WIDTH;
    __shared__ double scratch[width * Columns::THREADS / 2 + 1];
    Real alpha[width];
    for (int w = 0; w < width; w++) alpha[w] = alphas[Columns::first_rhs() + w];

    double sum[width] = {};
    Columns::for_each(rows, [&](long long i) {
        Real xr[width], xi[width], rr[width], ri[width], pr[width], pi[width], apr[width], api[width];
        unpack(x[i], xr, xi);
        unpack(r[i], rr, ri);
        unpack(p[i], pr, pi);
        unpack(ap[i], apr, api);
        #pragma unroll
        for (int w = 0; w < width; w++) {
            const bool moves = alpha[w] != 0;
            xr[w] = moves ? xr[w] + alpha[w] * pr[w] : xr[w];
            xi[w] = moves ? xi[w] + alpha[w] * pi[w] : xi[w];
            rr[w] = moves ? rr[w] - alpha[w] * apr[w] : rr[w];
            ri[w] = moves ? ri[w] - alpha[w] * api[w] : ri[w];
            sum[w] += double(rr[w]) * rr[w] + double(ri[w]) * ri[w];
        }
        pack(x[i], xr, xi);
        pack(r[i], rr, ri);
    });
    sum_over_groups<Columns::COUNT, GROUPS>(sum, scratch);
    if (threadIdx.x >= Columns::COUNT) return;
    for (int w = 0; w < width; w++) partials[size_t(blockIdx.x) * N + Columns::first_rhs() + w] = sum[w];
}

// p = r + beta p
template <class Real, int N, int GROUPS>
__global__ void __launch_bounds__(Columns<Real, N, GROUPS>::THREADS)
    cg_direction(Vector<Real, vector_width<Real>(N, N)>* __restrict__ p,
                 const Vector<Real, vector_width<Real>(N, N)>* __restrict__ r, const double* betas, long long rows) {
    using Columns = Columns<Real, N, GROUPS>;
    constexpr int width = Columns::WIDTH;
    Real beta[width];
    for (int w = 0; w < width; w++) beta[w] = betas[Columns::first_rhs() + w];

    Columns::for_each(rows, [&](long long i) {
        Real pr[width], pi[width], rr[width], ri[width];
        unpack(p[i], pr, pi);
        unpack(r[i], rr, ri);
        #pragma unroll
        for (int w = 0; w < width; w++) {
            pr[w] = beta[w] != 0 ? rr[w] + beta[w] * pr[w] : rr[w];
            pi[w] = beta[w] != 0 ? ri[w] + beta[w] * pi[w] : ri[w];
        }
        pack(p[i], pr, pi);
    });
}
