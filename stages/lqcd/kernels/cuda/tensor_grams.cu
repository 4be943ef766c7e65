// The sums of a block CGrQ iteration, as in `iteration_grams.cu`, on tensor cores: the Hermitian matrices P^H A P,
// (A P)^H A P and Q^H Q of P, A P and Q, each [rows][N], as partial sums of each block of threads, complex doubles
// [part][3][N][N].
//
// Columns are dealt out in groups of 16. A warp owns a group of one matrix's left factor, and computes its products
// with itself and the next groups, cyclically, up to half of them: each pair of groups once. Chunks of CHUNK rows
// stream through a ring of shared-memory stages, every SLICES-th 8 of them for one warp of each kind. Sums are of
// working precision: the grid sees to it that these are few rows. The sum over warps and blocks of threads is double.

#include "block_sum.cuh"
#include "complex_tiles.cuh"
#include "row_tile.cuh"
#include "share.cuh"

template <class Real, int N, int SLICES, int CHUNK, int MIN_BLOCKS>
__global__ void __launch_bounds__(3 * ceil_div(N, 16) * SLICES * WARP, MIN_BLOCKS)
    tensor_grams(const Complex<Real>* __restrict__ p, const Complex<Real>* __restrict__ ap,
                 const Complex<Real>* __restrict__ q, double2* partials, long long rows) {
    static_assert(N % 8 == 0 && CHUNK % (8 * SLICES) == 0, "whole tiles");
    constexpr int groups = ceil_div(N, 16), pairs = groups / 2 + 1, tasks = 3 * groups, stages = 3;
    constexpr int row_bytes = N * sizeof(Complex<Real>), stride = row_bytes + 32;  // 4 rows in different banks
    using Tile = RowTile<Real, N, CHUNK, stride, tasks * SLICES * WARP>;
    extern __shared__ __align__(16) unsigned char shared[];

    p += first_row() * N, ap += first_row() * N, q += first_row() * N, rows = end_row(rows) - first_row();
    const int warp = threadIdx.x / WARP, g = threadIdx.x % WARP / 4, t = threadIdx.x % 4;
    const int slice = warp / tasks, matrix = warp % tasks / groups, left = warp % groups;
    // Two groups that are half of all apart meet twice; in matrices one after another the other one has the pair.
    const int mine = groups % 2 == 0 && (left < groups / 2) == (matrix % 2 == 1) ? pairs - 1 : pairs;
    const long long chunks = (rows + CHUNK - 1) / CHUNK;

    const auto fetch_chunk = [&](long long chunk, int stage) {
        if (chunk < chunks) {
            unsigned char* to = shared + stage * 3 * Tile::BYTES;
            Tile::fetch(to, p, chunk * CHUNK, rows);
            Tile::fetch(to + Tile::BYTES, ap, chunk * CHUNK, rows);
            Tile::fetch(to + 2 * Tile::BYTES, q, chunk * CHUNK, rows);
        }
        commit_copies();
    };
    // Columns g and g + 8 of a group in rows t and t + 4 of 8. Columns past N are whatever lies there; their products
    // are never stored.
    const auto load = [&](const unsigned char* eight_rows, int group, Real (&re)[4], Real (&im)[4]) {
        #pragma unroll
        for (int i = 0; i < 4; i++)
            unpack(*reinterpret_cast<const Complex<Real>*>(eight_rows + (t + i / 2 * 4) * stride +
                                                           (16 * group + g + i % 2 * 8) * sizeof(Complex<Real>)),
                   re + i, im + i);
    };

    Real re[pairs][2][4] = {}, im[pairs][2][4] = {};
    for (int stage = 0; stage < stages - 1; stage++) fetch_chunk(blockIdx.x + stage * gridDim.x, stage);
    int stage = 0;
    for (long long chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
        wait_for_copies<stages - 2>();
        __syncthreads();
        fetch_chunk(chunk + (stages - 1) * gridDim.x, (stage + stages - 1) % stages);
        const unsigned char* fields = shared + stage * 3 * Tile::BYTES;
        #pragma unroll 1
        for (int k = 8 * slice; k < CHUNK; k += 8 * SLICES) {
            const unsigned char* x = fields + matrix * Tile::BYTES + k * stride;
            const unsigned char* y = fields + max(matrix, 1) * Tile::BYTES + k * stride;
            Real xr[4], xi[4];
            load(x, left, xr, xi);
            #pragma unroll
            for (int i = 0; i < 4; i++) xi[i] = -xi[i];
            const ComplexOperand<Real, 4> conjugate(xr, xi);
            #pragma unroll
            for (int pair = 0; pair < pairs; pair++) {
                if (pair >= mine) continue;
                Real yr[4], yi[4];
                load(y, (left + pair) % groups, yr, yi);
                #pragma unroll
                for (int h = 0; h < 2; h++)
                    multiply_add(re[pair][h], im[pair][h], conjugate,
                                 ComplexOperand<Real, 2>({yr[h], yr[2 + h]}, {yi[h], yi[2 + h]}));
            }
        }
        stage = (stage + 1) % stages;
    }

    wait_for_copies<0>();
    double2* part = partials + (size_t(blockIdx.x) * 3 + matrix) * (N * N);
    #pragma unroll
    for (int i = 0; i < 2 * pairs; i++) {
        const int pair = i / 2, h = i % 2, right = (left + pair) % groups;
        double total[8];
        #pragma unroll
        for (int c = 0; c < 4; c++) total[2 * c] = re[pair][h][c], total[2 * c + 1] = im[pair][h][c];
        sum_over_groups<tasks * WARP, SLICES>(total, reinterpret_cast<double*>(shared));
        if (slice > 0 || pair >= mine) continue;
        #pragma unroll
        for (int c = 0; c < 4; c++) {
            const int row = 16 * left + g + c / 2 * 8, column = 16 * right + 8 * h + 2 * t + c % 2;
            if (row >= N || column >= N || (pair == 0 && row > column)) continue;
            part[column * N + row] = {total[2 * c], -total[2 * c + 1]};
            part[row * N + column] = {total[2 * c], row == column ? 0 : total[2 * c + 1]};
        }
    }
}
