// A field of colour vectors on one parity from complex64 to 16 bytes each (short_field.cuh), and back. A thread converts
// one right-hand side of a site.

#include "short_field.cuh"

template <class Code, int N, int THREADS>
__global__ void __launch_bounds__(THREADS) to_short(const float2* __restrict__ from, uint4* to, long long sites) {
    long long i;
    if (!own_vector<N, THREADS>(i, sites)) return;
    ColorVectors<float, 1> v;
    load_colors<N>(v, from, i);
    to[i] = Code::encode(v, 0);
}

template <class Code, int N, int THREADS>
__global__ void __launch_bounds__(THREADS) from_short(const uint4* __restrict__ from, float2* to, long long sites) {
    long long i;
    if (!own_vector<N, THREADS>(i, sites)) return;
    ColorVectors<float, 1> v;
    Code::decode(from[i], v, 0);
    store_colors<N>(v, to, i);
}
