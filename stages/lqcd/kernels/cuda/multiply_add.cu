// out = base + x a for tall-skinny blocks: x [rows][NX], `stride` elements from one row to the next, a [NX][NY] (complex
// doubles), base and out [rows][NY] in the precision of the arithmetic, that of x or higher; rows of x start at multiples
// of UNIT bytes, 8 or 16. Without a base, out = x a. Nothing is done where `condition` points to zero. `out` may be
// `base`, and `x` if NX = NY: a block of threads has read its rows of x before it writes them.
//
// a stays in shared memory in that precision; blocks of GROUPS * TR rows of x pass through two shared-memory
// stages. A thread owns TR rows (`group`, `group` + GROUPS, ...) times TC columns of out.

#include "async_copy.cuh"
#include "complex.cuh"
#include "share.cuh"

template <class Real, class Sum, int NX, int NY, int TR, int TC, int GROUPS, int UNIT>
__global__ void __launch_bounds__(ceil_div(NY, TC) * GROUPS)
    multiply_add(const Complex<Real>* x, const double2* a, const Complex<Sum>* base, Complex<Sum>* out,
                 const double* condition, long long rows, long long stride) {
    if (condition && *condition == 0) return;
    x += first_row() * stride, out += first_row() * NY, rows = end_row(rows) - first_row();
    if (base) base += first_row() * NY;
    constexpr int lanes = ceil_div(NY, TC), threads = lanes * GROUPS, block_rows = GROUPS * TR;
    constexpr int width = vector_width<Sum>(NY, TC), columns = lanes * TC;
    constexpr int x_width = vector_width<Real>(NX, 2), row_bytes = NX * sizeof(Complex<Real>);
    constexpr int row_stride = row_bytes + 16;  // padded against bank conflicts
    extern __shared__ __align__(16) unsigned char shared[];
    auto* a_shared = reinterpret_cast<Complex<Sum>*>(shared);
    unsigned char* x_shared = shared + NX * columns * sizeof(Complex<Sum>);

    const int lane = threadIdx.x % lanes, group = threadIdx.x / lanes;
    const long long blocks = (rows + block_rows - 1) / block_rows;
    const auto column = [&](int j) { return (j / width * lanes + lane) * width; };

    const auto fetch_rows = [&](long long block, int stage) {
        if (block < blocks)
            for (int i = threadIdx.x * UNIT; i < block_rows * row_bytes; i += threads * UNIT) {
                const long long row = block * block_rows + i / row_bytes;
                copy_async<UNIT>(x_shared + stage * (block_rows * row_stride) + i / row_bytes * row_stride + i % row_bytes,
                                 reinterpret_cast<const unsigned char*>(x + row * stride) + i % row_bytes,
                                 row < rows ? UNIT : 0);
            }
        commit_copies();
    };

    fetch_rows(blockIdx.x, 0);
    for (int i = threadIdx.x; i < NX * columns; i += threads) {
        const int j = i % columns;
        const double2 value = j < NY ? a[i / columns * NY + j] : double2{0, 0};
        a_shared[i] = {Sum(value.x), Sum(value.y)};
    }
    int stage = 0;
    for (long long block = blockIdx.x; block < blocks; block += gridDim.x, stage ^= 1) {
        fetch_rows(block + gridDim.x, stage ^ 1);
        const long long first = block * block_rows + group;
        Sum re[TR][TC] = {}, im[TR][TC] = {};
        if (base)
            #pragma unroll
            for (int r = 0; r < TR; r++)
                #pragma unroll
                for (int j = 0; j < TC; j += width)
                    if (first + r * GROUPS < rows && column(j) < NY)
                        unpack(__ldcs(reinterpret_cast<const Vector<Sum, width>*>(base + (first + r * GROUPS) * NY +
                                                                                  column(j))),
                               &re[r][j], &im[r][j]);
        wait_for_copies<1>();
        __syncthreads();
        const unsigned char* x_rows = x_shared + stage * (block_rows * row_stride) + group * row_stride;
        #pragma unroll 2
        for (int k = 0; k < NX; k += x_width) {
            Real xr[TR][x_width], xi[TR][x_width];
            #pragma unroll
            for (int r = 0; r < TR; r++)
                unpack(*reinterpret_cast<const Vector<Real, x_width>*>(x_rows + r * (GROUPS * row_stride) +
                                                                      k * sizeof(Complex<Real>)),
                       xr[r], xi[r]);
            #pragma unroll
            for (int kk = 0; kk < x_width; kk++) {
                Sum ar[TC], ai[TC];
                #pragma unroll
                for (int j = 0; j < TC; j += width)
                    unpack(*reinterpret_cast<const Vector<Sum, width>*>(a_shared + (k + kk) * columns + column(j)),
                           ar + j, ai + j);
                #pragma unroll
                for (int r = 0; r < TR; r++)
                    #pragma unroll
                    for (int j = 0; j < TC; j++)
                        add_multiple(re[r][j], im[r][j], Sum(xr[r][kk]), Sum(xi[r][kk]), ar[j], ai[j]);
            }
        }
        #pragma unroll
        for (int r = 0; r < TR; r++)
            #pragma unroll
            for (int j = 0; j < TC; j += width)
                if (first + r * GROUPS < rows && column(j) < NY) {
                    Vector<Sum, width> v;
                    pack(v, &re[r][j], &im[r][j]);
                    __stcs(reinterpret_cast<Vector<Sum, width>*>(out + (first + r * GROUPS) * NY + column(j)), v);
                }
        __syncthreads();
    }
}
