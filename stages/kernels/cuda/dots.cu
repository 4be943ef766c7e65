// Per-rhs sums over rows, in double: conj(x) y and |x|^2. blockIdx.y is a slice of consecutive rows (a time slice,
// or everything); partials lie as [part][slice][rhs].

#include "complex.cuh"
#include "rows.cuh"
#include "block_sum.cuh"

template <class Real, int N, int GROUPS>
__global__ void __launch_bounds__(Columns<Real, N, GROUPS>::THREADS)
    dot_partials(const Vector<Real, vector_width<Real>(N, N)>* __restrict__ x,
                 const Vector<Real, vector_width<Real>(N, N)>* __restrict__ y, double* partials,
                 long long rows_per_slice) {
    using Columns = Columns<Real, N, GROUPS>;
    constexpr int width = Columns::WIDTH;
    __shared__ double scratch[2 * width * Columns::THREADS / 2 + 1];
    const size_t start = blockIdx.y * rows_per_slice * Columns::COUNT;
    double sum[2 * width] = {};
    Columns::for_each(rows_per_slice, [&](long long i) {
        Real xr[width], xi[width], yr[width], yi[width];
        unpack(x[start + i], xr, xi);
        unpack(y[start + i], yr, yi);
        #pragma unroll
        for (int w = 0; w < width; w++) {
            sum[2 * w] += double(xr[w]) * yr[w] + double(xi[w]) * yi[w];
            sum[2 * w + 1] += double(xr[w]) * yi[w] - double(xi[w]) * yr[w];
        }
    });
    sum_over_groups<Columns::COUNT, GROUPS>(sum, scratch);
    if (threadIdx.x >= Columns::COUNT) return;
    double* part = partials + 2 * ((size_t(blockIdx.x) * gridDim.y + blockIdx.y) * N + Columns::first_rhs());
    for (int v = 0; v < 2 * width; v++) part[v] = sum[v];
}

template <class Real, int N, int GROUPS>
__global__ void __launch_bounds__(Columns<Real, N, GROUPS>::THREADS)
    norm_partials(const Vector<Real, vector_width<Real>(N, N)>* __restrict__ x, double* partials, long long rows) {
    using Columns = Columns<Real, N, GROUPS>;
    constexpr int width = Columns::WIDTH;
    __shared__ double scratch[width * Columns::THREADS / 2 + 1];
    double sum[width] = {};
    Columns::for_each(rows, [&](long long i) {
        Real xr[width], xi[width];
        unpack(x[i], xr, xi);
        #pragma unroll
        for (int w = 0; w < width; w++) sum[w] += double(xr[w]) * xr[w] + double(xi[w]) * xi[w];
    });
    sum_over_groups<Columns::COUNT, GROUPS>(sum, scratch);
    if (threadIdx.x >= Columns::COUNT) return;
    for (int w = 0; w < width; w++) partials[size_t(blockIdx.x) * N + Columns::first_rhs() + w] = sum[w];
}
