// The sweep of a block CGrQ iteration over its blocks [rows][N], in place:
//
//     X += P a_x,   Q = Q a_q + A P a_ap,   P = Q + P a_p        (a_q upper triangular)
//
// or without X, which may be of another precision or width.
//
// Blocks of threads take 32 TR rows at a time to shared memory. A lane owns TR rows and its warp TC columns: the
// coefficients, in shared memory in working precision, then reach a whole warp in one broadcast, and a product is
// bound by arithmetic. What was computed goes back through shared memory, so that all of device memory is read and
// written in runs of rows. Several resident blocks hide the phases of one another.

#include "row_tile.cuh"
#include "share.cuh"

template <class Real, int N, int TR, int TC> struct StepTile {
    static constexpr int THREADS = 32 * (N / TC), COEFFICIENTS = N * N, VECTOR = vector_width<Real>(N, TC);
    static constexpr int STRIDE = N * sizeof(Complex<Real>) + 16;  // against bank conflicts
    using Rows = RowTile<Real, N, 32 * TR, STRIDE, THREADS>;
    using Vector = ::Vector<Real, VECTOR>;

    // sums += x a for the rows of this lane, the columns of this warp and each of the matrices one after another
    // in `a`; the first `terms` terms of the product.
    template <int MATRICES>
    static __device__ __forceinline__ void multiply(const unsigned char* x, const Complex<Real>* a, int terms,
                                                    Real (&re)[MATRICES][TR][TC], Real (&im)[MATRICES][TR][TC]) {
        #pragma unroll 2
        for (int k = 0; k < terms; k += VECTOR) {
            Real xr[TR][VECTOR], xi[TR][VECTOR];
            #pragma unroll
            for (int r = 0; r < TR; r++) unpack(at(x, r, k), xr[r], xi[r]);
            #pragma unroll
            for (int kk = 0; kk < VECTOR; kk++)
                #pragma unroll
                for (int m = 0; m < MATRICES; m++)
                    #pragma unroll
                    for (int j = 0; j < TC; j += VECTOR) {
                        Real ar[VECTOR], ai[VECTOR];
                        unpack(*reinterpret_cast<const Vector*>(a + (m * N + k + kk) * N + column() + j), ar, ai);
                        #pragma unroll
                        for (int v = 0; v < VECTOR; v++)
                            #pragma unroll
                            for (int r = 0; r < TR; r++)
                                add_multiple(re[m][r][j + v], im[m][r][j + v], xr[r][kk], xi[r][kk], ar[v], ai[v]);
                    }
        }
    }

    // The first column of this warp.
    static __device__ __forceinline__ int column() { return threadIdx.x / 32 * TC; }

    // Columns k ... of this lane's r-th row of a tile.
    static __device__ __forceinline__ const Vector& at(const unsigned char* tile, int r, int k) {
        return *reinterpret_cast<const Vector*>(tile + (threadIdx.x % 32 + 32 * r) * STRIDE + k * sizeof(Complex<Real>));
    }

    // This thread's elements of a tile: set, or added to what is there.
    template <bool ADD> static __device__ __forceinline__ void put(unsigned char* tile, const Real (&re)[TR][TC],
                                                                   const Real (&im)[TR][TC]) {
        #pragma unroll
        for (int r = 0; r < TR; r++)
            #pragma unroll
            for (int j = 0; j < TC; j += VECTOR) {
                Vector& place = const_cast<Vector&>(at(tile, r, column() + j));
                Real sum_re[VECTOR] = {}, sum_im[VECTOR] = {};
                if (ADD) unpack(place, sum_re, sum_im);
                #pragma unroll
                for (int v = 0; v < VECTOR; v++) sum_re[v] += re[r][j + v], sum_im[v] += im[r][j + v];
                pack(place, sum_re, sum_im);
            }
    }

    static __device__ __forceinline__ void load_coefficients(Complex<Real>* to, const double2* from) {
        for (int i = threadIdx.x; i < COEFFICIENTS; i += THREADS)
            to[i] = {Real(from[i].x), Real(from[i].y)};
    }
};

// Nothing is done where summary[0] is zero: the coefficients then mean nothing.
template <class Real, int N, int TR, int TC, int MIN_BLOCKS, bool WITH_X>
__global__ void __launch_bounds__(32 * (N / TC), MIN_BLOCKS)
    block_step(Complex<Real>* x, Complex<Real>* q, Complex<Real>* p, const Complex<Real>* ap, const double2* a_x,
               const double2* a_q, const double2* a_ap, const double2* a_p, const double* summary, long long rows) {
    using Tile = StepTile<Real, N, TR, TC>;
    using Rows = typename Tile::Rows;
    static_assert(N % TC == 0 && TC % Tile::VECTOR == 0, "a warp owns whole vectors");
    extern __shared__ __align__(16) unsigned char shared[];
    if (summary[0] == 0) return;
    rows = end_row(rows);

    auto* for_q = reinterpret_cast<Complex<Real>*>(shared);
    Complex<Real>*for_ap = for_q + N * N, *for_p = for_ap + N * N, *for_x = for_p + N * N;
    if (WITH_X) Tile::load_coefficients(for_x, a_x);
    Tile::load_coefficients(for_q, a_q);
    Tile::load_coefficients(for_ap, a_ap);
    Tile::load_coefficients(for_p, a_p);
    unsigned char* p_tile = reinterpret_cast<unsigned char*>(for_x + N * N);
    unsigned char *q_tile = p_tile + Rows::BYTES, *ap_tile = q_tile + Rows::BYTES, *x_tile = ap_tile;

    const long long start = first_row() + (long long)blockIdx.x * Rows::COUNT;
    for (long long first = start; first < rows; first += (long long)gridDim.x * Rows::COUNT) {
        Rows::fetch(q_tile, q, first, rows);
        Rows::fetch(ap_tile, ap, first, rows);
        commit_copies();
        Rows::fetch(p_tile, p, first, rows);
        commit_copies();
        wait_for_copies<1>();
        __syncthreads();
        Real re[1 + WITH_X][TR][TC] = {}, im[1 + WITH_X][TR][TC] = {};  // Q, later P, and X
        {
            Real q_re[1][TR][TC] = {}, q_im[1][TR][TC] = {};
            Tile::multiply<1>(q_tile, for_q, Tile::column() + TC, q_re, q_im);
            Tile::multiply<1>(ap_tile, for_ap, N, q_re, q_im);
            wait_for_copies<0>();
            __syncthreads();  // Q and A P have been read
            if (WITH_X) Rows::fetch(x_tile, x, first, rows);
            commit_copies();
            Tile::put<false>(q_tile, q_re[0], q_im[0]);
            #pragma unroll
            for (int r = 0; r < TR; r++)
                #pragma unroll
                for (int j = 0; j < TC; j++) re[0][r][j] = q_re[0][r][j], im[0][r][j] = q_im[0][r][j];
        }
        Tile::multiply<1 + WITH_X>(p_tile, for_p, N, re, im);
        wait_for_copies<0>();
        __syncthreads();  // P has been read
        Tile::put<false>(p_tile, re[0], im[0]);
        if (WITH_X) Tile::put<true>(x_tile, re[WITH_X], im[WITH_X]);
        __syncthreads();
        Rows::store(q, q_tile, first, rows);
        Rows::store(p, p_tile, first, rows);
        if (WITH_X) Rows::store(x, x_tile, first, rows);
        __syncthreads();
    }
}
