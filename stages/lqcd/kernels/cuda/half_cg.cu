// Vector updates of batched conjugate gradients on spinors in 16 bits with a scale (half_spinors.cuh), as cg_update.cu has
// them, with x in complex64, [site][12][rhs]; and |A p|^2, which the normal equations' A^H A p begins with. A thread has
// one right-hand side of a site at a time. A column that has converged keeps its codes.

#include "cg_coefficients.cuh"
#include "grid_sum.cuh"
#include "half_numbers.cuh"
#include "hermitian.cuh"

// y += a x
__device__ __forceinline__ void add(Numbers& y, float a, const Numbers& x) {
    #pragma unroll
    for (int c = 0; c < 12; c++) {
        y.re[c / 3][c % 3][0] += a * x.re[c / 3][c % 3][0];
        y.im[c / 3][c % 3][0] += a * x.im[c / 3][c % 3][0];
    }
}

// The 24 squares of a site do not need double, the sum over sites does.
__device__ __forceinline__ float square(const Numbers& x) {
    float sum = 0;
    #pragma unroll
    for (int c = 0; c < 12; c++) {
        sum += x.re[c / 3][c % 3][0] * x.re[c / 3][c % 3][0];
        sum += x.im[c / 3][c % 3][0] * x.im[c / 3][c % 3][0];
    }
    return sum;
}

// x += alpha p; where open, p = r + beta p
template <int N, int GROUPS>
__global__ void __launch_bounds__(N * GROUPS)
    half_advance(void* x, void* p, float* p_scales, const void* __restrict__ r, const float* __restrict__ r_scales,
                 double* numbers, long long sites) {
    const WholeSpinors<float, Lanes<N, 1, 1>> solution(x, nullptr);
    const Halves<N> direction(p, p_scales), residual(r, r_scales);
    const Coefficients<N> coefficients{numbers};
    for_sites<N, GROUPS>(sites, [&](unsigned site, int n) {
        const float alpha = coefficients.alpha(n), beta = coefficients.beta(n);
        const bool open = coefficients.open(n);
        if (alpha == 0 && !open) return;
        Numbers before, v;
        direction.template load<ReadOnce>(before, site, n);
        if (alpha != 0) {
            solution.template load<ReadOnce>(v, site, n);
            add(v, alpha, before);
            solution.store(v, site, n);
        }
        if (!open) return;
        residual.template load<ReadOnce>(v, site, n);
        if (beta != 0) add(v, beta, before);
        direction.store(v, site, n);
    });
}

// alpha = gamma / pap where the column moves, else 0; r -= alpha ap; then beta = |r|^2 / r2 and r2 = gamma = |r|^2, of r
// before it is rounded. Every block reads r2, gamma and pap before it counts as finished, and the last one alone writes.
template <int N, int GROUPS>
__global__ void __launch_bounds__(N * GROUPS, 512 / (N * GROUPS))
    half_step(void* r, float* r_scales, const void* __restrict__ ap, const float* __restrict__ ap_scales, double* numbers,
              double* partials, unsigned* finished, long long sites) {
    __shared__ double scratch[N * GROUPS / 2 + 1];
    const Halves<N> residual(r, r_scales), product(ap, ap_scales);
    const Coefficients<N> coefficients{numbers};
    const float alpha = coefficients.step(threadIdx.x % N);
    double sum[1] = {};
    for_sites<N, GROUPS>(sites, [&](unsigned site, int n) {
        Numbers v, w;
        residual.template load<ReadOnce>(v, site, n);
        if (alpha != 0) {
            product.template load<ReadOnce>(w, site, n);
            add(v, -alpha, w);
            residual.store(v, site, n);
        }
        sum[0] += square(v);
    });
    if (!sum_over_grid<N, GROUPS>(sum, scratch, {partials, finished})) return;
    coefficients.finish(threadIdx.x % N, sum[0]);
}

// |x|^2 of each right-hand side, [N]; with CLOVER also out = C x, C the two 6 x 6 matrices of each site, of a KIND.
template <int N, int GROUPS, bool CLOVER, int KIND>
__global__ void __launch_bounds__(N * GROUPS, 512 / (N * GROUPS))
    half_norms(const void* __restrict__ x, const float* __restrict__ x_scales, const float4* __restrict__ matrices,
               void* out, float* out_scales, double* norms, double* partials, unsigned* finished, long long sites) {
    __shared__ double scratch[N * GROUPS / 2 + 1];
    const Halves<N> field(x, x_scales), result(out, out_scales);
    double sum[1] = {};
    for_sites<N, GROUPS>(sites, [&](unsigned site, int n) {
        Numbers v;
        field.template load<ReadOnce>(v, site, n);
        sum[0] += square(v);
        if constexpr (CLOVER) {
            #pragma unroll
            for (int chirality = 0; chirality < 2; chirality++) {
                constexpr int reals = MATRIX_REALS<KIND>;
                alignas(16) float matrix[reals];
                #pragma unroll
                for (int i = 0; i < reals / 4; i++)
                    reinterpret_cast<float4*>(matrix)[i] =
                        __ldg(matrices + (2 * size_t(site) + chirality) * (reals / 4) + i);
                HalfSpinor<float, 1> h = chiral(v, chirality);
                multiply_by<KIND>(matrix, h);
                set_chiral(v, chirality, h);
            }
            result.store(v, site, n);
        }
    });
    if (sum_over_grid<N, GROUPS>(sum, scratch, {partials, finished})) norms[threadIdx.x % N] = sum[0];
}
