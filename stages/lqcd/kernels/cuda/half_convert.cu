// A field of spinors on one parity from complex64 to 16 bits with a scale, and back.

#include "half_spinors.cuh"
#include "share.cuh"

template <int N, int R> using HalfLanes = Lanes<N, R, R>;

// A thread converts R right-hand sides of a site; From and To are WholeSpinors and HalfSpinors or the reverse.
template <template <class, class> class From, template <class, class> class To, int N, int R>
__global__ void __launch_bounds__(256)
    convert(const void* __restrict__ from, const float* __restrict__ from_scales, void* to, float* to_scales, int sites) {
    const size_t i = first_row() + blockIdx.x * size_t(blockDim.x) + threadIdx.x;
    const unsigned site = i / HalfLanes<N, R>::COUNT, lane = i % HalfLanes<N, R>::COUNT;
    if (site >= sites || outside_share(i)) return;
    Spinor<float, R> v;
    From<float, HalfLanes<N, R>>(from, from_scales).template load<ReadOnce>(v, site, lane);
    To<float, HalfLanes<N, R>>(to, to_scales).store(v, site, lane);
}
