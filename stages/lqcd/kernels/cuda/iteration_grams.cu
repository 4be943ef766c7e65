// The sums of a block CGrQ iteration in one pass over P, A P and Q, each [rows][N]: the Hermitian matrices P^H A P,
// (A P)^H A P and Q^H Q as partial sums of each block of threads, complex doubles [part][3][N][N].
//
// Chunks of ROWS rows stream through a ring of shared-memory stages. A thread owns T x T elements of one matrix for
// every SLICES-th row of a chunk; of two tiles that mirror each other only one is computed. It sums in working
// precision: the grid sees to it that these are few rows. The sum over threads and blocks is double.

#include "block_sum.cuh"
#include "column_share.cuh"
#include "share.cuh"

template <class Real, int N, int T, int SLICES, int ROWS, int MIN_BLOCKS>
__global__ void __launch_bounds__(3 * triangle(N / T) * SLICES, MIN_BLOCKS)
    iteration_grams(const Complex<Real>* __restrict__ p, const Complex<Real>* __restrict__ ap,
                    const Complex<Real>* __restrict__ q, double2* partials, long long rows) {
    using Share = ColumnShare<Real, N, T>;
    constexpr int stages = 3, pairs = triangle(Share::COUNT), tasks = 3 * pairs, threads = tasks * SLICES;
    constexpr int bytes = ROWS * N * sizeof(Complex<Real>), stride = bytes + 64;  // fields in different banks
    extern __shared__ __align__(16) unsigned char shared[];

    p += first_row() * N, ap += first_row() * N, q += first_row() * N, rows = end_row(rows) - first_row();
    const int slice = threadIdx.x / tasks, task = threadIdx.x % tasks, matrix = task / pairs;
    int left = 0, right = task % pairs;
    while (right >= Share::COUNT - left) right -= Share::COUNT - left++;
    right += left;
    const long long chunks = (rows + ROWS - 1) / ROWS;

    const auto fetch_chunk = [&](long long chunk, int stage) {
        if (chunk < chunks) {
            unsigned char* to = shared + stage * 3 * stride;
            const long long valid = (rows - chunk * ROWS) * (bytes / ROWS);
            const auto* fields = reinterpret_cast<const unsigned char*>(p);
            fetch<bytes, threads>(to, fields + chunk * bytes, valid);
            fields = reinterpret_cast<const unsigned char*>(ap);
            fetch<bytes, threads>(to + stride, fields + chunk * bytes, valid);
            fields = reinterpret_cast<const unsigned char*>(q);
            fetch<bytes, threads>(to + 2 * stride, fields + chunk * bytes, valid);
        }
        commit_copies();
    };

    Real re[T][T] = {}, im[T][T] = {};
    for (int stage = 0; stage < stages - 1; stage++) fetch_chunk(blockIdx.x + stage * gridDim.x, stage);
    int stage = 0;
    for (long long chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
        wait_for_copies<stages - 2>();
        __syncthreads();
        fetch_chunk(chunk + (stages - 1) * gridDim.x, (stage + stages - 1) % stages);
        const unsigned char* fields = shared + stage * 3 * stride;
        const auto* x_rows = reinterpret_cast<const Complex<Real>*>(fields + matrix * stride);
        const auto* y_rows = reinterpret_cast<const Complex<Real>*>(fields + max(matrix, 1) * stride);
        #pragma unroll 2
        for (int k = slice; k < ROWS; k += SLICES) {
            Real xr[T], xi[T], yr[T], yi[T];
            Share::load(x_rows + k * N, left, xr, xi);
            Share::load(y_rows + k * N, right, yr, yi);
            #pragma unroll
            for (int i = 0; i < T; i++)
                #pragma unroll
                for (int j = 0; j < T; j++) add_conjugate(re[i][j], im[i][j], xr[i], xi[i], yr[j], yi[j]);
        }
        stage = (stage + 1) % stages;
    }

    wait_for_copies<0>();
    double2* part = partials + (size_t(blockIdx.x) * 3 + matrix) * (N * N);
    #pragma unroll
    for (int i = 0; i < T; i++)
        #pragma unroll
        for (int j = 0; j < T; j++) {
            double total[2] = {re[i][j], im[i][j]};
            sum_over_groups<tasks, SLICES>(total, reinterpret_cast<double*>(shared));
            const int row = Share::column(left, i), column = Share::column(right, j);
            if (slice > 0 || (left == right && row > column)) continue;
            part[column * N + row] = {total[0], -total[1]};
            part[row * N + column] = {total[0], row == column ? 0 : total[1]};
        }
}
