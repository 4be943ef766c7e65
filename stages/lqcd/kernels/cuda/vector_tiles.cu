// Near-null vectors in the orders in which the kernels of aggregation.cu read them: tiles of as many rows, or terms of a
// sum, as tensor cores take, and VECTORS vectors; zero beyond those that there are.
//
// Vectors lie as [matrix][row][K], `pitch` rows from one matrix to the next, of which the first `rows` are taken. A block
// has a matrix, and lane (g, t) = (lane / 4, lane % 4) its numbers of a tile side by side.

#include "complex.cuh"
#include "share.cuh"

constexpr int WARP = 32, VECTORS = 8, THREADS = 256;

template <int K> struct Matrix {
    static constexpr int CHUNKS = ceil_div(K, VECTORS);
    const float2* vectors;
    int rows;

    __device__ __forceinline__ float2 operator()(int row, int column) const {
        return row < rows && (K % VECTORS == 0 || column < K) ? vectors[size_t(row) * K + column] : float2{};
    }
};

// For restrictions: [matrix][8 rows][8 vectors][lane], rows t and t + 4 of vector g.
template <int K>
__global__ void __launch_bounds__(THREADS)
    term_tiles(const float2* __restrict__ vectors, float4* __restrict__ tiles, int rows, int pitch) {
    constexpr int chunks = Matrix<K>::CHUNKS;
    const size_t matrix = block_of_share<2>(blockIdx.x);
    const Matrix<K> v{vectors + matrix * pitch * K, rows};
    const int units = ceil_div(rows, 8) * chunks * WARP;
    for (int i = threadIdx.x; i < units; i += THREADS) {
        const int lane = i % WARP, column = i / WARP % chunks * VECTORS + lane / 4;
        const int row = i / WARP / chunks * 8 + lane % 4;
        const float2 a = v(row, column), b = v(row + 4, column);
        tiles[matrix * units + i] = {a.x, a.y, b.x, b.y};
    }
}

// For prolongations: [matrix][16 rows][8 vectors][lane][2], rows g and g + 8 of vector t, then of vector t + 4.
template <int K>
__global__ void __launch_bounds__(THREADS)
    row_tiles(const float2* __restrict__ vectors, float4* __restrict__ tiles, int rows, int pitch) {
    constexpr int chunks = Matrix<K>::CHUNKS;
    const size_t matrix = block_of_share<2>(blockIdx.x);
    const Matrix<K> v{vectors + matrix * pitch * K, rows};
    const int units = ceil_div(rows, 16) * chunks * WARP * 2;
    for (int i = threadIdx.x; i < units; i += THREADS) {
        const int half = i % 2, lane = i / 2 % WARP, column = i / 2 / WARP % chunks * VECTORS + half * 4 + lane % 4;
        const int row = i / 2 / WARP / chunks * 16 + lane / 4;
        const float2 a = v(row, column), b = v(row + 8, column);
        tiles[matrix * units + i] = {a.x, a.y, b.x, b.y};
    }
}
