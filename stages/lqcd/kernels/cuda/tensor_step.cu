// The sweep of a block CGrQ iteration, as in `block_step.cu`, on tensor cores:
//
//     X += P a_x,   Q = Q a_q + A P a_ap,   P = Q + P a_p        (a_q upper triangular)
//
// X is double. In double precision all is one sweep; in single precision X has its own.
//
// Blocks of threads take 16 M rows at a time to shared memory; a warp computes 8 C columns of them. Coefficients are
// read through the caches, in the order in which lanes need them: all blocks of threads read the same ones, and M row
// tiles share what is read. A lane takes the columns 2t and 2t + 1 of 8 for the terms t and t + 4 of a product, so
// that it reads and writes neighbours.

#include "complex_tiles.cuh"
#include "row_tile.cuh"
#include "share.cuh"

// What a lane holds of an 8 x 8 tile of coefficients: elements (2t, g) and (2t + 1, g).
template <class Real> struct Fragment;
template <> struct Fragment<float> {
    float4 v;

    __device__ __forceinline__ ComplexOperand<float, 2> operand() const { return {{v.x, v.z}, {v.y, v.w}}; }
};
template <> struct Fragment<double> {
    double2 v[2];

    __device__ __forceinline__ ComplexOperand<double, 2> operand() const {
        return {{v[0].x, v[1].x}, {v[0].y, v[1].y}};
    }
};

// A tile of coefficients is 64 complex numbers: vectors of 16 bytes, those of the 32 lanes next to each other.
template <class Real> __device__ __forceinline__ Fragment<Real> fragment(const Complex<Real>* tile);
template <> __device__ __forceinline__ Fragment<float> fragment<float>(const float2* tile) {
    return {__ldg(reinterpret_cast<const float4*>(tile) + threadIdx.x % WARP)};
}
template <> __device__ __forceinline__ Fragment<double> fragment<double>(const double2* tile) {
    return {{__ldg(tile + threadIdx.x % WARP), __ldg(tile + WARP + threadIdx.x % WARP)}};
}

// Element i of a matrix in that order, tiles [row / 8][column / 8].
template <class Real, int N>
__device__ __forceinline__ void put_in_tiles(const double2* matrix, Complex<Real>* out, int i) {
    constexpr int width = 16 / sizeof(Complex<Real>);
    const int tile = i / 64, vector = i % 64 / width, lane = vector % WARP;
    const int second = vector / WARP * width + i % width;
    const int row = tile / (N / 8) * 8 + lane % 4 * 2 + second, column = tile % (N / 8) * 8 + lane / 4;
    const double2 value = matrix[row * N + column];
    out[i] = {Real(value.x), Real(value.y)};
}

// The coefficients of Q, A P and P, [3][N^2], and with a fourth blockIdx.y those of X, which stay double.
template <class Real, int N>
__global__ void __launch_bounds__(256)
    coefficient_tiles(const double2* q, const double2* ap, const double2* p, const double2* x, Complex<Real>* out,
                      double2* for_x) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x, matrix = blockIdx.y;
    if (i >= N * N) return;
    const double2* matrices[3] = {q, ap, p};
    if (matrix < 3) put_in_tiles<Real, N>(matrices[matrix], out + matrix * N * N, i);
    else put_in_tiles<double, N>(x, for_x, i);
}

template <class Real, int N, int M, int C> struct StepWarp {
    static constexpr int TILES = N / 8, THREADS = WARP * TILES / C, ROW_BYTES = N * sizeof(Complex<Real>);
    static constexpr int APART = sizeof(Real) == 8 ? 16 : 64;  // two rows of lanes then read from all banks at once
    static constexpr int STRIDE = ROW_BYTES + (APART + 128 - ROW_BYTES % 128) % 128;
    static constexpr int VECTOR = 16 / sizeof(Complex<Real>);
    using Rows = RowTile<Real, N, 16 * M, STRIDE, THREADS>;
    using Vector = ::Vector<Real, VECTOR>;

    template <class To> struct Sums {
        To re[M][C][4] = {}, im[M][C][4] = {};
    };

    // The first tile of columns of this warp.
    static __device__ __forceinline__ int column_tile() { return threadIdx.x / WARP * C; }

    // Where this lane's pair of columns begins, in row g or g + 8 of a row tile and a tile of columns.
    static __device__ __forceinline__ int place(int row_tile, int half, int column_tile) {
        const int lane = threadIdx.x % WARP, row = 16 * row_tile + 8 * half + lane / 4;
        return row * STRIDE + (8 * column_tile + lane % 4 * 2) * int(sizeof(Complex<Real>));
    }

    static __device__ __forceinline__ void load_pair(const unsigned char* at, Real* re, Real* im) {
        #pragma unroll
        for (int i = 0; i < 2; i += VECTOR)
            unpack(*reinterpret_cast<const Vector*>(at + i * sizeof(Complex<Real>)), re + i, im + i);
    }

    template <class To>
    static __device__ __forceinline__ ComplexOperand<To, 4> rows_of(const unsigned char* tile, int row_tile, int k) {
        Real re[2][2], im[2][2];
        load_pair(tile + place(row_tile, 0, k), re[0], im[0]);
        load_pair(tile + place(row_tile, 1, k), re[1], im[1]);
        return {{To(re[0][0]), To(re[1][0]), To(re[0][1]), To(re[1][1])},
                {To(im[0][0]), To(im[1][0]), To(im[0][1]), To(im[1][1])}};
    }

    // sums += x a for this warp's columns and each of the matrices one after another in `a`, the first `terms` tiles
    // of terms. Coefficients are asked for one tile ahead.
    template <int MATRICES, class To>
    static __device__ __forceinline__ void multiply(const unsigned char* x, const Complex<To>* a, int terms,
                                                    Sums<To> (&sums)[MATRICES]) {
        Fragment<To> next[MATRICES][C];
        const auto ask = [&](int k) {
            #pragma unroll
            for (int i = 0; i < MATRICES * C; i++)
                next[i / C][i % C] = fragment<To>(a + i / C * N * N + (k * TILES + column_tile() + i % C) * 64);
        };
        ask(0);
        #pragma unroll 1
        for (int k = 0; k < terms; k++) {
            Fragment<To> now[MATRICES][C];
            #pragma unroll
            for (int i = 0; i < MATRICES * C; i++) now[i / C][i % C] = next[i / C][i % C];
            if (k + 1 < terms) ask(k + 1);
            #pragma unroll
            for (int r = 0; r < M; r++) {
                const ComplexOperand<To, 4> rows = rows_of<To>(x, r, k);
                #pragma unroll
                for (int m = 0; m < MATRICES; m++)
                    #pragma unroll
                    for (int c = 0; c < C; c++)
                        multiply_add(sums[m].re[r][c], sums[m].im[r][c], rows, now[m][c].operand());
            }
        }
    }

    // This warp's columns of a tile.
    static __device__ __forceinline__ void put(unsigned char* tile, const Sums<Real>& sums) {
        #pragma unroll
        for (int i = 0; i < M * C * 2; i++) {
            const int r = i / 2 / C, c = i / 2 % C, half = i % 2;
            unsigned char* at = tile + place(r, half, column_tile() + c);
            #pragma unroll
            for (int j = 0; j < 2; j += VECTOR)
                pack(*reinterpret_cast<Vector*>(at + j * sizeof(Complex<Real>)), sums.re[r][c] + 2 * half + j,
                     sums.im[r][c] + 2 * half + j);
        }
    }

    // body(element, row tile, column tile, element of the sums) for this warp's columns of X in device memory, whose
    // eight of a tile are a whole line.
    template <class Body>
    static __device__ __forceinline__ void each(double2* x, long long first, long long rows, Body body) {
        const int lane = threadIdx.x % WARP;
        #pragma unroll
        for (int i = 0; i < M * C * 2; i++) {
            const int r = i / 2 / C, c = i / 2 % C, half = i % 2;
            const long long row = first + 16 * r + 8 * half + lane / 4;
            double2* at = x + row * N + 8 * (column_tile() + c) + lane % 4 * 2;
            if (row < rows) body(at, r, c, 2 * half), body(at + 1, r, c, 2 * half + 1);
        }
    }

    static __device__ __forceinline__ void load(double2* x, long long first, long long rows, Sums<double>& sums) {
        each(x, first, rows, [&](const double2* at, int r, int c, int i) {
            unpack(__ldcs(at), &sums.re[r][c][i], &sums.im[r][c][i]);
        });
    }

    static __device__ __forceinline__ void store(double2* x, long long first, long long rows, const Sums<double>& sums) {
        each(x, first, rows, [&](double2* at, int r, int c, int i) {
            __stcs(at, double2{sums.re[r][c][i], sums.im[r][c][i]});
        });
    }
};

// Nothing is done where summary[0] is zero: the coefficients then mean nothing. `coefficients` are those of Q, A P, P
// and, in double precision, X.
template <class Real, int N, int M, int C, int MIN_BLOCKS>
__global__ void __launch_bounds__(WARP* N / 8 / C, MIN_BLOCKS)
    tensor_step(double2* x, Complex<Real>* q, Complex<Real>* p, const Complex<Real>* ap,
                const Complex<Real>* __restrict__ coefficients, const double* summary, long long rows) {
    static_assert(N % (8 * C) == 0, "a warp owns whole tiles");
    constexpr bool with_x = sizeof(Real) == sizeof(double);
    using Warp = StepWarp<Real, N, M, C>;
    using Tile = typename Warp::Rows;
    extern __shared__ __align__(16) unsigned char shared[];
    if (summary[0] == 0) return;
    rows = end_row(rows);

    unsigned char *p_tile = shared, *q_tile = p_tile + Tile::BYTES, *ap_tile = q_tile + Tile::BYTES;
    const long long all = (long long)gridDim.x * Tile::COUNT;
    for (long long first = first_row() + (long long)blockIdx.x * Tile::COUNT; first < rows; first += all) {
        Tile::fetch(q_tile, q, first, rows);
        Tile::fetch(ap_tile, ap, first, rows);
        commit_copies();
        Tile::fetch(p_tile, p, first, rows);
        commit_copies();
        wait_for_copies<1>();
        __syncthreads();
        typename Warp::template Sums<Real> sums[1 + with_x];  // Q, later P, and X
        {
            typename Warp::template Sums<Real> new_q[1];
            Warp::multiply(q_tile, coefficients, Warp::column_tile() + C, new_q);
            Warp::multiply(ap_tile, coefficients + N * N, Warp::TILES, new_q);
            if constexpr (with_x) Warp::load(x, first, rows, sums[1]);
            wait_for_copies<0>();
            __syncthreads();  // Q and A P have been read
            Warp::put(q_tile, new_q[0]);
            sums[0] = new_q[0];
        }
        Warp::multiply(p_tile, coefficients + 2 * N * N, Warp::TILES, sums);
        if constexpr (with_x) Warp::store(x, first, rows, sums[1]);
        __syncthreads();  // P has been read
        Warp::put(p_tile, sums[0]);
        __syncthreads();
        Tile::store(q, q_tile, first, rows);
        Tile::store(p, p_tile, first, rows);
        __syncthreads();
    }
}

// X += P a_x for P in single precision.
template <int N, int M, int C, int MIN_BLOCKS>
__global__ void __launch_bounds__(WARP* N / 8 / C, MIN_BLOCKS)
    tensor_solution(double2* x, const float2* p, const double2* __restrict__ coefficients, const double* summary,
                    long long rows) {
    using Warp = StepWarp<float, N, M, C>;
    using Tile = typename Warp::Rows;
    extern __shared__ __align__(16) unsigned char shared[];
    if (summary[0] == 0) return;
    rows = end_row(rows);

    const long long all = (long long)gridDim.x * Tile::COUNT;
    for (long long first = first_row() + (long long)blockIdx.x * Tile::COUNT; first < rows; first += all) {
        Tile::fetch(shared, p, first, rows);
        commit_copies();
        typename Warp::template Sums<double> sums[1];
        Warp::load(x, first, rows, sums[0]);
        wait_for_copies<0>();
        __syncthreads();
        Warp::multiply(shared, coefficients, Warp::TILES, sums);
        Warp::store(x, first, rows, sums[0]);
        __syncthreads();
    }
}
