// Random numbers whose parts are uniform in (-1, 1): SplitMix64 at counter `start` + element (random_block.py).

#include "complex.cuh"
#include "share.cuh"

template <class Real>
__global__ void __launch_bounds__(256)
    fill_random(Complex<Real>* block, unsigned long long elements, unsigned long long start) {
    const unsigned long long stride = (unsigned long long)gridDim.x * blockDim.x;
    for (unsigned long long i = segment_start(elements) + (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
         i < segment_end(elements); i += stride) {
        unsigned long long z = (i + 1) * 0x9E3779B97F4A7C15ull + start;
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
        z ^= z >> 31;
        block[i] = {Real(unsigned(z >> 32) * 0x1p-31 - 1), Real(unsigned(z) * 0x1p-31 - 1)};
    }
}
