// Gram matrix of tall-skinny blocks, G = x^H y for x [rows][NX] and y [rows][NY], in the precision of y, that of x or
// higher: partial sums per block of threads, as complex doubles [part][NX][NY]. With UNIT the rows of x are `stride`
// elements apart, and start at multiples of so many bytes, 8 or 16.
//
// Chunks of ROWS rows of x and y stream through a ring of shared-memory stages. A thread owns TX x TY elements of G
// for every SLICES-th row of a chunk, and adds what it has summed in working precision to double totals after
// every FLUSH chunks (FLUSH = 0: never in between; the working precision is double).

#include "block_sum.cuh"
#include "column_share.cuh"
#include "share.cuh"

template <class Real, class Sum, int NX, int NY, int TX, int TY, int SLICES, int ROWS, int FLUSH, int UNIT>
__global__ void __launch_bounds__(ceil_div(NX, TX) * ceil_div(NY, TY) * SLICES)
    gram_partials(const Complex<Real>* __restrict__ x, const Complex<Sum>* __restrict__ y, double2* partials,
                  long long rows, long long stride) {
    using ShareX = ColumnShare<Real, NX, TX>;
    using ShareY = ColumnShare<Sum, NY, TY>;
    constexpr int stages = 3, tiles = ShareX::COUNT * ShareY::COUNT, threads = tiles * SLICES;
    constexpr int row_bytes = NX * sizeof(Complex<Real>), x_bytes = ROWS * row_bytes;
    constexpr int y_bytes = ROWS * NY * sizeof(Complex<Sum>);
    extern __shared__ __align__(16) unsigned char shared[];

    x += first_row() * (UNIT ? stride : NX), y += first_row() * NY, rows = end_row(rows) - first_row();
    const int ty = threadIdx.x % ShareY::COUNT, tx = threadIdx.x / ShareY::COUNT % ShareX::COUNT;
    const int slice = threadIdx.x / tiles;
    const long long chunks = (rows + ROWS - 1) / ROWS;

    const auto fetch_chunk = [&](long long chunk, int stage) {
        if (chunk < chunks) {
            unsigned char* to = shared + stage * (x_bytes + y_bytes);
            const long long left = rows - chunk * ROWS;
            if constexpr (UNIT > 0) {
                for (int i = threadIdx.x * UNIT; i < x_bytes; i += threads * UNIT) {
                    const Complex<Real>* row = x + (chunk * ROWS + i / row_bytes) * stride;
                    copy_async<UNIT>(to + i, reinterpret_cast<const unsigned char*>(row) + i % row_bytes,
                                     i / row_bytes < left ? UNIT : 0);
                }
            } else {
                fetch<x_bytes, threads>(to, reinterpret_cast<const unsigned char*>(x) + chunk * x_bytes,
                                        left * row_bytes);
            }
            fetch<y_bytes, threads>(to + x_bytes, reinterpret_cast<const unsigned char*>(y) + chunk * y_bytes,
                                    left * (y_bytes / ROWS));
        }
        commit_copies();
    };

    Sum re[TX][TY] = {}, im[TX][TY] = {};
    double total[2 * TX * TY] = {};
    const auto flush = [&]() {
        #pragma unroll
        for (int i = 0; i < TX; i++)
            #pragma unroll
            for (int j = 0; j < TY; j++) {
                total[2 * (i * TY + j)] += re[i][j], re[i][j] = 0;
                total[2 * (i * TY + j) + 1] += im[i][j], im[i][j] = 0;
            }
    };

    for (int stage = 0; stage < stages - 1; stage++) fetch_chunk(blockIdx.x + stage * gridDim.x, stage);
    int stage = 0, unflushed = 0;
    for (long long chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
        wait_for_copies<stages - 2>();
        __syncthreads();
        fetch_chunk(chunk + (stages - 1) * gridDim.x, (stage + stages - 1) % stages);
        const auto* x_rows = reinterpret_cast<const Complex<Real>*>(shared + stage * (x_bytes + y_bytes));
        const auto* y_rows = reinterpret_cast<const Complex<Sum>*>(x_rows + ROWS * NX);
        #pragma unroll 2
        for (int k = slice; k < ROWS; k += SLICES) {
            Real xr[TX], xi[TX];
            Sum yr[TY], yi[TY];
            ShareX::load(x_rows + k * NX, tx, xr, xi);
            ShareY::load(y_rows + k * NY, ty, yr, yi);
            #pragma unroll
            for (int i = 0; i < TX; i++)
                #pragma unroll
                for (int j = 0; j < TY; j++) add_conjugate(re[i][j], im[i][j], Sum(xr[i]), Sum(xi[i]), yr[j], yi[j]);
        }
        if (FLUSH > 0 && ++unflushed == FLUSH) flush(), unflushed = 0;
        stage = (stage + 1) % stages;
    }
    flush();

    wait_for_copies<0>();
    sum_over_groups<tiles, SLICES>(total, reinterpret_cast<double*>(shared));
    if (slice > 0) return;
    double2* part = partials + size_t(blockIdx.x) * (NX * NY);
    #pragma unroll
    for (int i = 0; i < TX; i++)
        #pragma unroll
        for (int j = 0; j < TY; j++) {
            const int column_x = ShareX::column(tx, i), column_y = ShareY::column(ty, j), at = 2 * (i * TY + j);
            if (column_x < NX && column_y < NY) part[column_x * NY + column_y] = {total[at], total[at + 1]};
        }
}
