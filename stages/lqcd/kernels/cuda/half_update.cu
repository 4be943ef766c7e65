// Sums and updates of spinors in 16 bits with a scale (half_spinors.cuh), complex coefficients for each right-hand side,
// complex doubles [k][N]. A thread has one right-hand side of a site at a time. A right-hand side that an update leaves
// as it is keeps its codes. The last block of a sum of BiCGstab computes the coefficients that it gives.

#include "bicgstab_coefficients.cuh"
#include "grid_sum.cuh"
#include "half_numbers.cuh"

// Real and imaginary part of conj(x) y of each right-hand side; true in the threads that have the sum.
template <int N, int GROUPS>
__device__ __forceinline__ bool dot(double (&sum)[2], double* scratch, const Halves<N>& x, const Halves<N>& y,
                                    const GridSums& sums, long long sites) {
    for_sites<N, GROUPS>(sites, [&](unsigned site, int n) {
        Numbers v, w;
        y.template load<ReadOnce>(v, site, n);
        x.template load<ReadOnce>(w, site, n);
        add_dot(sum, w, v);
    });
    return sum_over_grid<N, GROUPS>(sum, scratch, sums);
}

// conj(x) y, complex [N].
template <int N, int GROUPS>
__global__ void __launch_bounds__(N * GROUPS, 512 / (N * GROUPS))
    half_dot(const void* __restrict__ x, const float* __restrict__ x_scales, const void* __restrict__ y,
             const float* __restrict__ y_scales, double2* result, double* partials, unsigned* finished,
             long long sites) {
    __shared__ double scratch[2 * N * GROUPS / 2 + 1];
    double sum[2] = {};
    if (dot<N, GROUPS>(sum, scratch, {x, x_scales}, {y, y_scales}, {partials, finished}, sites))
        result[threadIdx.x % N] = {sum[0], sum[1]};
}

// s^H v and alpha.
template <int N, int GROUPS>
__global__ void __launch_bounds__(N * GROUPS, 512 / (N * GROUPS))
    half_alpha(const void* __restrict__ shadow, const float* __restrict__ shadow_scales, const void* __restrict__ v,
               const float* __restrict__ v_scales, double2* numbers, double* reals, double* partials,
               unsigned* finished, long long sites) {
    __shared__ double scratch[2 * N * GROUPS / 2 + 1];
    double sum[2] = {};
    if (dot<N, GROUPS>(sum, scratch, {shadow, shadow_scales}, {v, v_scales}, {partials, finished}, sites))
        give_alpha(BiCGstabCoefficients<N>{numbers, reals}, threadIdx.x % N, {sum[0], sum[1]});
}

// |t|^2, s^H t and t^H r; omega, the next rho and beta.
template <int N, int GROUPS>
__global__ void __launch_bounds__(N * GROUPS, 512 / (N * GROUPS))
    half_omega(const void* __restrict__ t, const float* __restrict__ t_scales, const void* __restrict__ shadow,
               const float* __restrict__ shadow_scales, const void* __restrict__ r, const float* __restrict__ r_scales,
               double2* numbers, double* reals, double* partials, unsigned* finished, long long sites) {
    __shared__ double scratch[6 * N * GROUPS / 2 + 1];
    const Halves<N> product(t, t_scales), start(shadow, shadow_scales), residual(r, r_scales);
    double sum[6] = {};
    for_sites<N, GROUPS>(sites, [&](unsigned site, int n) {
        Numbers v, w;
        product.template load<ReadOnce>(v, site, n);
        add_dot(sum, v, v);
        start.template load<ReadOnce>(w, site, n);
        add_dot(sum + 2, w, v);
        residual.template load<ReadOnce>(w, site, n);
        add_dot(sum + 4, v, w);
    });
    if (!sum_over_grid<N, GROUPS>(sum, scratch, {partials, finished})) return;
    const BiCGstabCoefficients<N> c{numbers, reals};
    give_omega(c, threadIdx.x % N, sum[0], {sum[2], sum[3]}, {sum[4], sum[5]});
}

// y = scale y + sum_k a_k x_k, scale being one where its pointer is null.
template <int N, int GROUPS, int K>
__global__ void __launch_bounds__(N * GROUPS)
    half_update(void* y, float* y_scales, const void* __restrict__ x, const float* __restrict__ x_scales,
                const void* __restrict__ x1, const float* __restrict__ x1_scales, const double2* __restrict__ a,
                const double2* __restrict__ scale, long long sites) {
    const Halves<N> result(y, y_scales), fields[2] = {{x, x_scales}, {x1, x1_scales}};
    for_sites<N, GROUPS>(sites, [&](unsigned site, int n) {
        const float2 own = scale ? single(scale[n]) : float2{1, 0};
        bool changes = own.x != 1 || own.y != 0;
        float2 factors[K];
        #pragma unroll
        for (int k = 0; k < K; k++) {
            factors[k] = single(a[k * N + n]);
            changes |= factors[k].x != 0 || factors[k].y != 0;
        }
        if (!changes) return;
        Numbers v, w, sum = {};
        result.template load<ReadOnce>(v, site, n);
        add(sum, own, v);
        #pragma unroll
        for (int k = 0; k < K; k++) {
            fields[k].template load<ReadOnce>(w, site, n);
            add(sum, factors[k], w);
        }
        result.store(sum, site, n);
    });
}

// y += alpha p + omega r, r -= omega t, |r|^2 before r is rounded; the coefficients of the next direction.
template <int N, int GROUPS>
__global__ void __launch_bounds__(N * GROUPS, 512 / (N * GROUPS))
    half_residual(void* y, const void* __restrict__ p, const float* __restrict__ p_scales, void* r, float* r_scales,
                  const void* __restrict__ t, const float* __restrict__ t_scales, double2* numbers, double* reals,
                  double* partials, unsigned* finished, long long sites) {
    __shared__ double scratch[N * GROUPS / 2 + 1];
    const WholeSpinors<float, Lanes<N, 1, 1>> solution(y, nullptr);
    const Halves<N> direction(p, p_scales), residual(r, r_scales), product(t, t_scales);
    const BiCGstabCoefficients<N> c{numbers, reals};
    const float2 alpha = single(c.alpha(threadIdx.x % N)), omega = single(c.omega(threadIdx.x % N));
    const bool moves = alpha.x != 0 || alpha.y != 0 || omega.x != 0 || omega.y != 0;
    double sum[1] = {};
    for_sites<N, GROUPS>(sites, [&](unsigned site, int n) {
        Numbers v, w;
        residual.template load<ReadOnce>(v, site, n);
        if (moves) {
            Numbers moved;
            solution.template load<ReadOnce>(moved, site, n);
            direction.template load<ReadOnce>(w, site, n);
            add(moved, alpha, w);
            add(moved, omega, v);
            solution.store(moved, site, n);
            product.template load<ReadOnce>(w, site, n);
            add(v, float2{-omega.x, -omega.y}, w);
            if (omega.x != 0 || omega.y != 0) residual.store(v, site, n);
        }
        double square[2] = {};
        add_dot(square, v, v);
        sum[0] += square[0];
    });
    if (!sum_over_grid<N, GROUPS>(sum, scratch, {partials, finished})) return;
    give_direction(c, threadIdx.x % N, sum[0]);
}
