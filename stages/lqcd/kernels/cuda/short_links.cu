// Links13 as ShortLinks of links.cuh: per tile and mu fat links [2][site][3 rows], two rows of the long ones
// [2][site][2 rows], each row 16 bytes, and phases [2][site]. A block takes a tile and a mu.

#include "complex.cuh"
#include "color_vectors.cuh"
#include "short_field.cuh"

template <int SITES>
__global__ void __launch_bounds__(64) short_links(uint4* __restrict__ shorter, const float2* __restrict__ links) {
    constexpr int ROWS = 2 * SITES * 5, PHASES = 2 * SITES;
    const size_t block = size_t(blockIdx.x) * 4 + blockIdx.y;
    const float2* rows = links + block * (3 * ROWS + PHASES / 2);
    uint4* out = shorter + block * (ROWS + PHASES / 4);
    for (int i = threadIdx.x; i < ROWS; i += blockDim.x) {
        ColorVectors<float, 1> row;
        #pragma unroll
        for (int j = 0; j < 3; j++) unpack(rows[3 * i + j], row.re[j], row.im[j]);
        out[i] = Short20::encode(row, 0);
    }
    for (int i = threadIdx.x; i < PHASES; i += blockDim.x)
        reinterpret_cast<float*>(out + ROWS)[i] = reinterpret_cast<const float*>(rows + 3 * ROWS)[i];
}
