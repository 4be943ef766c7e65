// Checksum of words of 64 bits (checksum.py): sum_i m(w_i ^ i GOLDEN) modulo 2^64.

#include "share.cuh"

typedef unsigned long long Word;

__device__ __forceinline__ Word mixed(Word word, Word place) {
    const Word z = word ^ (place * 0x9E3779B97F4A7C15ull);
    const Word y = (z ^ (z >> 32)) * 0xBF58476D1CE4E5B9ull;
    return y ^ (y >> 29);
}

__global__ void __launch_bounds__(256)
    sum_words(Word* total, const Word* __restrict__ words, Word count) {
    const Word stride = (Word)gridDim.x * blockDim.x, first = segment_start(count), end = segment_end(count);
    Word sum = 0;
    #pragma unroll 4
    for (Word i = first + (Word)blockIdx.x * blockDim.x + threadIdx.x; i < end; i += stride) sum += mixed(words[i], i);
    for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_down_sync(0xffffffffu, sum, offset);
#ifdef SPREAD
    if (threadIdx.x % 32 == 0) atomicAdd_system(total, sum);
#else
    if (threadIdx.x % 32 == 0) atomicAdd(total, sum);
#endif
}
