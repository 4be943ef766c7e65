// Links18 tiles of 16 directions, [tile][direction][site][3][3], as ShorterLinks of links.cuh: per tile and mu fat links
// [2][site][3][3], two rows [2][site][2][3] and a Phase [2][site] of the long ones. A block takes a tile and a mu. worst:
// the largest deviation of a rebuilt third row relative to its length, as the bits of a float; not less than 1e30 where a
// first row vanishes.

#include "complex.cuh"

// The number that times conj(row 0 x row 1) is the third row of a long link, and how far that rebuilds it.
template <class C> __device__ __forceinline__ double2 factor_of(const C* link, float* deviation) {
    double re = 0, im = 0, cross2 = 0, third2 = 0, cross_re[3], cross_im[3];
    #pragma unroll
    for (int j = 0; j < 3; j++) {
        const C a = link[(j + 1) % 3], b = link[3 + (j + 2) % 3], c = link[(j + 2) % 3], d = link[3 + (j + 1) % 3];
        const C third = link[6 + j];
        cross_re[j] = double(a.x) * b.x - double(a.y) * b.y - double(c.x) * d.x + double(c.y) * d.y;
        cross_im[j] = double(a.x) * b.y + double(a.y) * b.x - double(c.x) * d.y - double(c.y) * d.x;
        re += cross_re[j] * third.x - cross_im[j] * third.y;
        im += cross_re[j] * third.y + cross_im[j] * third.x;
        cross2 += cross_re[j] * cross_re[j] + cross_im[j] * cross_im[j];
        third2 += double(third.x) * third.x + double(third.y) * third.y;
    }
    re /= cross2, im /= cross2;
    double largest = cross2 > 0 && third2 > 0 ? 0 : 1e30;
    #pragma unroll
    for (int j = 0; j < 3; j++) {
        const double off_re = re * cross_re[j] + im * cross_im[j] - link[6 + j].x;
        const double off_im = im * cross_re[j] - re * cross_im[j] - link[6 + j].y;
        largest = fmax(largest, hypot(off_re, off_im) * rsqrt(third2));
    }
    *deviation = float(largest);
    return {re, im};
}

__device__ __forceinline__ void keep(float* phase, double2 factor) {
    *phase = float(atan2(factor.y, factor.x) / 3.14159265358979323846);
}
template <class C> __device__ __forceinline__ void keep(C* phase, double2 factor) {
    using Real = decltype(phase->x);
    *phase = {Real(factor.x), Real(factor.y)};
}

template <class C, class Phase, int SITES>
__global__ void __launch_bounds__(64) shorter_links(C* __restrict__ shorter, const C* __restrict__ tiles, unsigned* worst) {
    constexpr int LINKS = 2 * SITES, FAT = 9 * LINKS, ROWS = 6 * LINKS;
    constexpr int BYTES = (FAT + ROWS) * sizeof(C) + LINKS * sizeof(Phase);
    const C* fat = tiles + (size_t(blockIdx.x) * 4 + blockIdx.y) * (2 * FAT);
    const C* longs = fat + FAT;
    C* out = reinterpret_cast<C*>(reinterpret_cast<char*>(shorter) + (size_t(blockIdx.x) * 4 + blockIdx.y) * BYTES);
    Phase* phases = reinterpret_cast<Phase*>(out + FAT + ROWS);
    for (int i = threadIdx.x; i < FAT; i += blockDim.x) out[i] = fat[i];
    for (int i = threadIdx.x; i < ROWS; i += blockDim.x) out[FAT + i] = longs[i / 6 * 9 + i % 6];
    for (int i = threadIdx.x; i < LINKS; i += blockDim.x) {
        C link[9];
        #pragma unroll
        for (int e = 0; e < 9; e++) link[e] = longs[9 * i + e];
        float deviation;
        keep(phases + i, factor_of(link, &deviation));
        atomicMax(worst, __float_as_uint(deviation));  // of positive numbers the bits are ordered as they are
    }
}
