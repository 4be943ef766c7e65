// Gram matrices of a few fields xs[k][row][N] and least squares among them, each right-hand side by itself.

#include "grid_sum.cuh"
#include "rows.cuh"

// conj(xs[j]) xs[k] for j <= k in double; the result is the whole Hermitian matrix [FIELDS][FIELDS][N].
template <class Real, int N, int FIELDS, int GROUPS>
__global__ void __launch_bounds__(Columns<Real, N, GROUPS>::THREADS)
    lane_gram(const RowVector<Real, N>* __restrict__ xs, double2* gram, double* partials, unsigned* finished,
              long long rows) {
    using Columns = Columns<Real, N, GROUPS>;
    constexpr int width = Columns::WIDTH, pairs = FIELDS * (FIELDS + 1) / 2;
    __shared__ double scratch[2 * width * pairs * Columns::THREADS / 2 + 1];
    const long long field = rows * Columns::COUNT;
    double sum[2 * width * pairs] = {};
    Columns::for_each<1>(rows, [&](long long i) {
        Real re[FIELDS][width], im[FIELDS][width];
        #pragma unroll
        for (int k = 0; k < FIELDS; k++) unpack(xs[k * field + i], re[k], im[k]);
        int pair = 0;
        #pragma unroll
        for (int j = 0; j < FIELDS; j++)
            #pragma unroll
            for (int k = j; k < FIELDS; k++, pair++)
                #pragma unroll
                for (int w = 0; w < width; w++) {
                    double* to = sum + 2 * (pair * width + w);
                    to[0] += double(re[j][w]) * re[k][w] + double(im[j][w]) * im[k][w];
                    to[1] += double(re[j][w]) * im[k][w] - double(im[j][w]) * re[k][w];
                }
    });
    if (!sum_over_grid<Columns::COUNT, GROUPS>(sum, scratch, {partials, finished})) return;
    int pair = 0;
    #pragma unroll
    for (int j = 0; j < FIELDS; j++)
        #pragma unroll
        for (int k = j; k < FIELDS; k++, pair++)
            #pragma unroll
            for (int w = 0; w < width; w++) {
                const double re = sum[2 * (pair * width + w)], im = sum[2 * (pair * width + w) + 1];
                const int rhs = Columns::first_rhs() + w;
                gram[(j * FIELDS + k) * N + rhs] = {re, im};
                gram[(k * FIELDS + j) * N + rhs] = {re, -im};
            }
}

// c[FIELDS - 1][n] with the shortest x_0 - sum_k c_k x_{k + 1}, by Cholesky's factors of the fields scaled to norm one;
// zero for fields that vanish or whose pivot is below `noise`. A thread for each right-hand side.
template <class Real, int FIELDS>
__global__ void lane_least_squares(const double2* __restrict__ gram, double2* __restrict__ c, double noise, int n) {
    constexpr int size = FIELDS - 1;
    const int rhs = blockIdx.x * blockDim.x + threadIdx.x;
    if (rhs >= n) return;
    const auto product = [=](int j, int k) { return gram[(j * FIELDS + k) * n + rhs]; };
    double2 factor[size][size], x[size];
    double scale[size], inverse[size];
    #pragma unroll
    for (int j = 0; j < size; j++) {
        const double norm2 = product(j + 1, j + 1).x;
        scale[j] = norm2 > 0 ? 1 / sqrt(norm2) : 0;
    }
    #pragma unroll
    for (int j = 0; j < size; j++) {
        const double2 right = product(j + 1, 0);
        double pivot = scale[j] > 0 ? 1 : 0;
        double2 total = {right.x * scale[j], right.y * scale[j]};
        #pragma unroll
        for (int k = 0; k < j; k++) {
            const double2 f = factor[j][k];
            pivot -= f.x * f.x + f.y * f.y;
            total.x -= f.x * x[k].x - f.y * x[k].y;
            total.y -= f.x * x[k].y + f.y * x[k].x;
        }
        inverse[j] = pivot > noise ? 1 / sqrt(pivot) : 0;
        x[j] = {total.x * inverse[j], total.y * inverse[j]};
        #pragma unroll
        for (int i = j + 1; i < size; i++) {
            double2 p = product(i + 1, j + 1);
            p = {p.x * scale[i] * scale[j], p.y * scale[i] * scale[j]};
            #pragma unroll
            for (int k = 0; k < j; k++) {  // minus f_ik conj(f_jk)
                const double2 a = factor[i][k], b = factor[j][k];
                p.x -= a.x * b.x + a.y * b.y;
                p.y -= a.y * b.x - a.x * b.y;
            }
            factor[i][j] = {p.x * inverse[j], p.y * inverse[j]};
        }
    }
    #pragma unroll
    for (int j = size - 1; j >= 0; j--) {
        double2 total = x[j];
        #pragma unroll
        for (int i = j + 1; i < size; i++) {  // minus conj(f_ij) x_i
            const double2 f = factor[i][j];
            total.x -= f.x * x[i].x + f.y * x[i].y;
            total.y -= f.x * x[i].y - f.y * x[i].x;
        }
        x[j] = {total.x * inverse[j], total.y * inverse[j]};
    }
    #pragma unroll
    for (int j = 0; j < size; j++) c[j * n + rhs] = {x[j].x * scale[j], x[j].y * scale[j]};
}
