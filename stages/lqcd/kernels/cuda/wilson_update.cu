// A step of an iteration with the Wilson operator, on one parity, many right-hand sides:
//   out(s) = a own(s) + b C sum_mu [ ... x(s +- mu) ] + c source(s),
// the sum as in wilson_dslash.cu, C one or the clover term's matrices (CLOVER), a, b and c complex; no source where its
// pointer is null. x is stored as In, own and source as Own, out as Out says: complex numbers of Real, or 16-bit numbers.

#include "wilson_gather.cuh"

// v += a w
template <class Real, int R>
__device__ __forceinline__ void add(HalfSpinor<Real, R>& v, Complex<Real> a, const HalfSpinor<Real, R>& w) {
    each_of_half<R>([&](int s, int c, int r) {
        add_multiple(v.re[s][c][r], v.im[s][c][r], a.x, a.y, w.re[s][c][r], w.im[s][c][r]);
    });
}

template <class Real, class L, class Tile, template <class, int, int, int> class LinksOf, class In, class Own, class Out,
          int CLOVER, int N, int R, int SITES, int MIN_BLOCKS, int Y_CHUNK, int Z_CHUNK>
__global__ void __launch_bounds__(SITES * (N / R), MIN_BLOCKS)
    wilson_update(const unsigned char* __restrict__ tiles, const Real* __restrict__ factors,
                  const void* __restrict__ x, const float* __restrict__ x_scales, const Real* __restrict__ clover,
                  const void* own, const float* own_scales, const void* __restrict__ source,
                  const float* __restrict__ source_scales, void* out, float* out_scales, Real a_re, Real a_im, Real b_re,
                  Real b_im, Real c_re, Real c_im, int parity) {
    using Reads = typename Own::template Field<Real, Lanes<N, R, R>>;
    using Result = typename Out::template Field<Real, Lanes<N, R, R>>;
    auto hops = gathered<Real, L, Tile, LinksOf, In, 1, CLOVER, N, R, SITES, Y_CHUNK, Z_CHUNK>(
        tiles, factors, x, x_scales, clover, parity);
    const unsigned at = hops.site;
    const int lane = hops.lane;
    #pragma unroll
    for (int chirality = 0; chirality < 2; chirality++) {
        HalfSpinor<Real, R> v = chiral(hops.sum, chirality), sum = {}, w;
        constexpr int kind = KIND_OF<CLOVER>;
        if constexpr (PLACE_OF<CLOVER> == HOP_CLOVER) multiply_by<kind>(hops.matrix + chirality * MATRIX_REALS<kind>, v);
        add(sum, Complex<Real>{b_re, b_im}, v);
        Reads(own, own_scales).template load<ReadOnce>(w, at, chirality, lane);
        add(sum, Complex<Real>{a_re, a_im}, w);
        if (source) {
            Reads(source, source_scales).template load<ReadOnce>(w, at, chirality, lane);
            add(sum, Complex<Real>{c_re, c_im}, w);
        }
        set_chiral(hops.sum, chirality, sum);
    }
    Result(out, out_scales).store(hops.sum, at, lane);
}
