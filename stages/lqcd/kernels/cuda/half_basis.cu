// Sums and updates of a field of spinors in single precision over a basis xs[k] of spinors in 16 bits with a scale
// (half_spinors.cuh), each right-hand side with coefficients of its own, complex doubles [k][N], which are rounded to
// single precision and kept in shared memory. A thread has one right-hand side of a site at a time, and reads it once.

#include "grid_sum.cuh"
#include "half_numbers.cuh"

template <int N> using Singles = WholeSpinors<float, Lanes<N, 1, 1>>;

// Field k of a basis.
template <int N>
__device__ __forceinline__ Halves<N> field(const unsigned* codes, const float* scales, int k, long long sites) {
    return {codes + k * (12 * N * sites), scales + k * (N * sites)};
}

template <int N, int GROUPS> __device__ __forceinline__ void keep(float2* factors, const double2* a, int count) {
    for (int i = threadIdx.x; i < count * N; i += N * GROUPS) factors[i] = single(a[i]);
    __syncthreads();
}

// v += sum_k a_k xs[k] of one site and right-hand side.
template <int N>
__device__ __forceinline__ void add_fields(Numbers& v, const float2* factors, const unsigned* xs, const float* scales,
                                           unsigned site, int n, long long sites, int count) {
    #pragma unroll 2
    for (int k = 0; k < count; k++) {
        Numbers w;
        field<N>(xs, scales, k, sites).template load<ReadOnce>(w, site, n);
        add(v, factors[k * N + n], w);
    }
}

// conj(xs[k]) y. blockIdx.y counts groups of FIELDS fields, the last of which may have fewer: y is read once for each.
template <int N, int FIELDS, int GROUPS>
__global__ void __launch_bounds__(N * GROUPS, 512 / (N * GROUPS))
    half_basis_dots(const unsigned* __restrict__ xs, const float* __restrict__ scales, const void* __restrict__ y,
                    double2* sums, double* partials, unsigned* finished, long long sites, int count) {
    __shared__ double scratch[2 * FIELDS * N * GROUPS / 2 + 1];
    const int first = blockIdx.y * FIELDS, present = min(FIELDS, count - first);
    const Singles<N> source(y, nullptr);
    double sum[2 * FIELDS] = {};
    for_sites<N, GROUPS>(sites, [&](unsigned site, int n) {
        Numbers v, w;
        source.template load<ReadOnce>(v, site, n);
        #pragma unroll
        for (int k = 0; k < FIELDS; k++)
            if (k < present) {
                field<N>(xs, scales, first + k, sites).template load<ReadOnce>(w, site, n);
                add_dot(sum + 2 * k, w, v);
            }
    });
    if (!sum_over_grid<N, GROUPS>(sum, scratch, {partials, finished})) return;
    #pragma unroll
    for (int k = 0; k < FIELDS; k++)
        if (k < present) sums[(first + k) * N + threadIdx.x % N] = {sum[2 * k], sum[2 * k + 1]};
}

// out = w = y + sum_k a[k] xs[k] in 16 bits; conj(w) r and |w|^2 before it is rounded.
template <int N, int GROUPS>
__global__ void __launch_bounds__(N * GROUPS, 512 / (N * GROUPS))
    half_basis_combine(const void* __restrict__ y, const unsigned* __restrict__ xs, const float* __restrict__ scales,
                       const double2* __restrict__ a, void* out, float* out_scales, const void* __restrict__ r,
                       double2* sums, double* partials, unsigned* finished, long long sites, int count) {
    extern __shared__ __align__(16) unsigned char shared[];
    __shared__ double scratch[3 * N * GROUPS / 2 + 1];
    auto* factors = reinterpret_cast<float2*>(shared);
    keep<N, GROUPS>(factors, a, count);
    const Singles<N> source(y, nullptr), residual(r, nullptr);
    const Halves<N> result(out, out_scales);
    double sum[3] = {};
    for_sites<N, GROUPS>(sites, [&](unsigned site, int n) {
        Numbers v, w;
        source.template load<ReadOnce>(v, site, n);
        add_fields<N>(v, factors, xs, scales, site, n, sites, count);
        result.store(v, site, n);
        residual.template load<ReadOnce>(w, site, n);
        add_dot(sum, v, w);
        double square[2] = {};
        add_dot(square, v, v);
        sum[2] += square[0];
    });
    if (!sum_over_grid<N, GROUPS>(sum, scratch, {partials, finished})) return;
    sums[threadIdx.x % N] = {sum[0], sum[1]};
    sums[N + threadIdx.x % N] = {sum[2], 0};
}

// y += sum_k a[k] xs[k]; |y|^2.
template <int N, int GROUPS>
__global__ void __launch_bounds__(N * GROUPS, 512 / (N * GROUPS))
    half_basis_update(void* y, const unsigned* __restrict__ xs, const float* __restrict__ scales,
                      const double2* __restrict__ a, double* norms2, double* partials, unsigned* finished,
                      long long sites, int count) {
    extern __shared__ __align__(16) unsigned char shared[];
    __shared__ double scratch[N * GROUPS / 2 + 1];
    auto* factors = reinterpret_cast<float2*>(shared);
    keep<N, GROUPS>(factors, a, count);
    const Singles<N> result(y, nullptr);
    double sum[1] = {};
    for_sites<N, GROUPS>(sites, [&](unsigned site, int n) {
        Numbers v;
        result.template load<ReadOnce>(v, site, n);
        add_fields<N>(v, factors, xs, scales, site, n, sites, count);
        result.store(v, site, n);
        double square[2] = {};
        add_dot(square, v, v);
        sum[0] += square[0];
    });
    if (sum_over_grid<N, GROUPS>(sum, scratch, {partials, finished})) norms2[threadIdx.x % N] = sum[0];
}
