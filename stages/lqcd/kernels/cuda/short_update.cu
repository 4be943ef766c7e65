// Vector updates of batched conjugate gradients on fields of 16 bytes a vector (short_field.cuh): as cg_update.cu, with
// the residual r and A p in Short20 and the directions p in Short16; x is complex64, [site][3][rhs]. A column that has
// converged keeps its bits.

#include "cg_coefficients.cuh"
#include "grid_sum.cuh"
#include "short_field.cuh"

// x += alpha p; where open, p = r + beta p. A thread takes one right-hand side of one site.
template <int N, int THREADS>
__global__ void __launch_bounds__(THREADS) short_advance(float2* __restrict__ x, uint4* __restrict__ p,
                                                         const uint4* __restrict__ r, double* numbers, long long sites) {
    long long i;
    if (!own_vector<N, THREADS>(i, sites)) return;
    const Coefficients<N> coefficients{numbers};
    const int n = i % N;
    const float alpha = coefficients.alpha(n), beta = coefficients.beta(n);
    ColorVectors<float, 1> direction, v;
    Short16::decode(p[i], direction, 0);
    if (alpha != 0) {
        load_colors<N>(v, x, i);
        add(v, alpha, direction);
        store_colors<N>(v, x, i);
    }
    if (!coefficients.open(n)) return;
    Short20::decode(__ldcs(r + i), v, 0);
    if (beta != 0) add(v, beta, direction);
    p[i] = Short16::encode(v, 0);
}

// alpha = gamma / pap where the column moves, else 0; r -= alpha ap; then beta = |r|^2 / r2 and r2 = gamma = |r|^2.
// Every block reads r2, gamma and pap before it counts as finished, and the last one alone writes.
template <int N, int GROUPS>
__global__ void __launch_bounds__(N * GROUPS, 1024 / (N * GROUPS))
    short_residual(uint4* __restrict__ r, const uint4* __restrict__ ap, double* numbers, double* partials,
                   unsigned* finished, long long sites) {
    __shared__ double scratch[N * GROUPS / 2 + 1];
    const Coefficients<N> coefficients{numbers};
    const int n = threadIdx.x % N;
    const float alpha = coefficients.step(n);

    double sum[1] = {};
    #pragma unroll 2
    for (long long site = first_row() + blockIdx.x * GROUPS + threadIdx.x / N; site < end_row(sites);
         site += gridDim.x * GROUPS) {
        const long long i = site * N + n;
        ColorVectors<float, 1> v, product;
        Short20::decode(r[i], v, 0);
        if (alpha != 0) {
            Short20::decode(__ldcs(ap + i), product, 0);
            add(v, -alpha, product);
            r[i] = Short20::encode(v, 0);
        }
        double square[1];
        dots(square, v, v);
        sum[0] += square[0];
    }
    if (!sum_over_grid<N, GROUPS>(sum, scratch, {partials, finished})) return;
    coefficients.finish(n, sum[0]);
}
