// How the columns of a row of N complex numbers are dealt out to threads, and copies of whole rows to shared memory.

#include "async_copy.cuh"
#include "complex.cuh"

__device__ constexpr int triangle(int n) { return n * (n + 1) / 2; }

// The T columns of a row of N that one of COUNT threads owns: vectors `thread`, `thread` + COUNT, ...
template <class Real, int N, int T> struct ColumnShare {
    static constexpr int COUNT = ceil_div(N, T), WIDTH = vector_width<Real>(N, T);

    static __device__ __forceinline__ int column(int thread, int i) {
        return (i / WIDTH * COUNT + thread) * WIDTH + i % WIDTH;
    }

    // Columns past the end of the row are whatever lies there; their products are never stored.
    static __device__ __forceinline__ void load(const Complex<Real>* row, int thread, Real* re, Real* im) {
        #pragma unroll
        for (int i = 0; i < T; i += WIDTH)
            unpack(*reinterpret_cast<const Vector<Real, WIDTH>*>(row + column(thread, i)), re + i, im + i);
    }
};

// Copy the `bytes` at `global`, of which `valid` exist, to shared memory; the rest becomes zero.
template <int BYTES, int THREADS>
__device__ __forceinline__ void fetch(unsigned char* shared, const unsigned char* global, long long valid) {
    const int end = valid < BYTES ? int(valid) : BYTES;
    #pragma unroll 4
    for (int i = threadIdx.x * 16; i < BYTES; i += THREADS * 16)
        copy_async<16>(shared + i, global + i, max(0, min(16, end - i)));
}
