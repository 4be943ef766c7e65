// Element-wise work on a block of right-hand sides seen as rows [row][N]: a thread keeps to one vector column, so
// that per-rhs coefficients and sums stay in registers, and neighbouring threads touch neighbouring memory. A device
// works on its own share of the rows.

#include "complex.cuh"
#include "share.cuh"

// The vectors of which a row of N right-hand sides consists.
template <class Real, int N> using RowVector = Vector<Real, vector_width<Real>(N, N)>;

template <class Real, int N, int GROUPS_> struct Columns {
    static constexpr int WIDTH = vector_width<Real>(N, N), COUNT = N / WIDTH, GROUPS = GROUPS_;
    static constexpr int THREADS = COUNT * GROUPS;
    using Vector = ::Vector<Real, WIDTH>;

    // The first right-hand side of this thread.
    static __device__ __forceinline__ int first_rhs() { return threadIdx.x % COUNT * WIDTH; }

    // Call body(i) with i the vector index of every element of this thread's column in `rows` rows.
    template <int UNROLL, class Body> static __device__ __forceinline__ void for_each(long long rows, Body body) {
        #pragma unroll UNROLL
        for (long long row = first_row() + blockIdx.x * GROUPS + threadIdx.x / COUNT; row < end_row(rows);
             row += gridDim.x * GROUPS)
            body(row * COUNT + threadIdx.x % COUNT);
    }

    // The same where the grid has a thread for each element: without a sum to keep, this is the fastest.
    template <class Body> static __device__ __forceinline__ void for_one(long long rows, Body body) {
        const long long row = first_row() + blockIdx.x * (long long)GROUPS + threadIdx.x / COUNT;
        if (row < end_row(rows)) body(row * COUNT + threadIdx.x % COUNT);
    }
};
