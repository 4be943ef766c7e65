// Links18 tiles of 16 directions, [tile][direction][site][3][3], as Links13 of links.cuh: per tile and mu fat links
// [2][site][3][3], two rows [2][site][2][3] and phases over pi [2][site] of the long ones. A block takes a tile and a
// mu. worst: the largest deviation of a rebuilt third row relative to its length, as the bits of a float; not less than
// 1e30 where a first row vanishes.

#include "complex.cuh"

// Phase over pi of a long link's third row relative to conj(row 0 x row 1) / |row 0|, and how far that rebuilds it.
__device__ __forceinline__ float phase_of(const float2* link, float* deviation) {
    double re = 0, im = 0, norm2 = 0, cross_re[3], cross_im[3];
    #pragma unroll
    for (int j = 0; j < 3; j++) {
        const float2 a = link[(j + 1) % 3], b = link[3 + (j + 2) % 3], c = link[(j + 2) % 3], d = link[3 + (j + 1) % 3];
        cross_re[j] = double(a.x) * b.x - double(a.y) * b.y - double(c.x) * d.x + double(c.y) * d.y;
        cross_im[j] = double(a.x) * b.y + double(a.y) * b.x - double(c.x) * d.y - double(c.y) * d.x;
        re += cross_re[j] * link[6 + j].x - cross_im[j] * link[6 + j].y;
        im += cross_re[j] * link[6 + j].y + cross_im[j] * link[6 + j].x;
        norm2 += double(link[j].x) * link[j].x + double(link[j].y) * link[j].y;
    }
    const double length = sqrt(norm2), size = hypot(re, im), cosine = re / (size * length), sine = im / (size * length);
    double largest = norm2 > 0 && size > 0 ? 0 : 1e30;
    #pragma unroll
    for (int j = 0; j < 3; j++) {
        const double off_re = cosine * cross_re[j] + sine * cross_im[j] - link[6 + j].x;
        const double off_im = sine * cross_re[j] - cosine * cross_im[j] - link[6 + j].y;
        largest = fmax(largest, hypot(off_re, off_im) / length);
    }
    *deviation = float(largest);
    return float(atan2(im, re) / 3.14159265358979323846);
}

template <int SITES>
__global__ void __launch_bounds__(64)
    shorter_links(float2* __restrict__ shorter, const float2* __restrict__ tiles, unsigned* worst) {
    constexpr int LINKS = 2 * SITES, FAT = 9 * LINKS, ROWS = 6 * LINKS, REALS = 2 * (FAT + ROWS) + LINKS;
    const float2* fat = tiles + (size_t(blockIdx.x) * 4 + blockIdx.y) * (2 * FAT);
    const float2* longs = fat + FAT;
    float2* out = shorter + (size_t(blockIdx.x) * 4 + blockIdx.y) * (REALS / 2);
    float* phases = reinterpret_cast<float*>(out + FAT + ROWS);
    for (int i = threadIdx.x; i < FAT; i += blockDim.x) out[i] = fat[i];
    for (int i = threadIdx.x; i < ROWS; i += blockDim.x) out[FAT + i] = longs[i / 6 * 9 + i % 6];
    for (int i = threadIdx.x; i < LINKS; i += blockDim.x) {
        float2 link[9];
        #pragma unroll
        for (int e = 0; e < 9; e++) link[e] = longs[9 * i + e];
        float deviation;
        phases[i] = phase_of(link, &deviation);
        atomicMax(worst, __float_as_uint(deviation));  // of positive numbers the bits are ordered as they are
    }
}
