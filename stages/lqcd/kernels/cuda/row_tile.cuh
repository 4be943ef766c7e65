// Consecutive rows of a block [rows][N] in shared memory, STRIDE bytes apart, copied by all THREADS of a block.

#include "async_copy.cuh"
#include "complex.cuh"

template <class Real, int N, int COUNT_, int STRIDE_, int THREADS> struct RowTile {
    static constexpr int COUNT = COUNT_, STRIDE = STRIDE_, ROW_BYTES = N * sizeof(Complex<Real>);
    static constexpr int BYTES = COUNT * STRIDE;
    static_assert(ROW_BYTES % 16 == 0 && STRIDE % 16 == 0, "whole vectors");

    // Rows past the end become zero.
    static __device__ __forceinline__ void fetch(unsigned char* tile, const Complex<Real>* field, long long first,
                                                 long long rows) {
        for (int i = threadIdx.x * 16; i < COUNT * ROW_BYTES; i += THREADS * 16) {
            const long long row = first + i / ROW_BYTES;
            copy_async<16>(tile + i / ROW_BYTES * STRIDE + i % ROW_BYTES,
                           reinterpret_cast<const unsigned char*>(field) + row * ROW_BYTES + i % ROW_BYTES,
                           row < rows ? 16 : 0);
        }
    }

    static __device__ __forceinline__ void store(Complex<Real>* field, const unsigned char* tile, long long first,
                                                 long long rows) {
        for (int i = threadIdx.x * 16; i < COUNT * ROW_BYTES; i += THREADS * 16) {
            const long long row = first + i / ROW_BYTES;
            if (row < rows)
                __stcs(reinterpret_cast<float4*>(reinterpret_cast<unsigned char*>(field) + row * ROW_BYTES +
                                                 i % ROW_BYTES),
                       *reinterpret_cast<const float4*>(tile + i / ROW_BYTES * STRIDE + i % ROW_BYTES));
        }
    }
};
