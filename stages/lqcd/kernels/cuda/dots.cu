// Per-rhs sums over rows, in double: conj(x) y and |x|^2. blockIdx.y is a slice of consecutive rows (a time slice,
// or everything); sums lie as [slice][rhs].

#include "grid_sum.cuh"
#include "rows.cuh"

template <class Real, int N, int GROUPS>
__global__ void __launch_bounds__(Columns<Real, N, GROUPS>::THREADS, 1024 / Columns<Real, N, GROUPS>::THREADS)
    dots(const RowVector<Real, N>* __restrict__ x, const RowVector<Real, N>* __restrict__ y, double* sums,
         double* partials, unsigned* finished, long long rows_per_slice) {
    using Columns = Columns<Real, N, GROUPS>;
    constexpr int width = Columns::WIDTH;
    __shared__ double scratch[2 * width * Columns::THREADS / 2 + 1];
    const size_t start = slice_index() * rows_per_slice * Columns::COUNT;
    double sum[2 * width] = {};
    Columns::for_each<2>(rows_per_slice, [&](long long i) {
        Real xr[width], xi[width], yr[width], yi[width];
        unpack(x[start + i], xr, xi);
        unpack(y[start + i], yr, yi);
        #pragma unroll
        for (int w = 0; w < width; w++) add_dot(sum + 2 * w, xr[w], xi[w], yr[w], yi[w]);
    });
    if (!sum_over_grid<Columns::COUNT, GROUPS>(sum, scratch, {partials, finished})) return;
    double* total = sums + 2 * (slice_index() * N + Columns::first_rhs());
    for (int v = 0; v < 2 * width; v++) total[v] = sum[v];
}

template <class Real, int N, int GROUPS>
__global__ void __launch_bounds__(Columns<Real, N, GROUPS>::THREADS, 2048 / Columns<Real, N, GROUPS>::THREADS)
    norms2(const RowVector<Real, N>* __restrict__ x, double* sums, double* partials, unsigned* finished,
           long long rows) {
    using Columns = Columns<Real, N, GROUPS>;
    constexpr int width = Columns::WIDTH;
    __shared__ double scratch[width * Columns::THREADS / 2 + 1];
    double sum[width] = {};
    Columns::for_each<4>(rows, [&](long long i) {
        Real xr[width], xi[width];
        unpack(x[i], xr, xi);
        #pragma unroll
        for (int w = 0; w < width; w++) sum[w] += double(xr[w]) * xr[w] + double(xi[w]) * xi[w];
    });
    if (!sum_over_grid<Columns::COUNT, GROUPS>(sum, scratch, {partials, finished})) return;
    for (int w = 0; w < width; w++) sums[Columns::first_rhs() + w] = sum[w];
}
