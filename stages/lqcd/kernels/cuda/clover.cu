// out = C v with the two 6 x 6 matrices of each site (hermitian.cuh); a thread has one chirality of R
// right-hand sides. out may be x.

#include "hermitian.cuh"
#include "share.cuh"

template <class Real, int N, int R, int KIND>
__global__ void __launch_bounds__(256)
    clover_multiply(const Real* __restrict__ matrices, const void* x, void* out, int sites) {
    using Lanes = Lanes<N, R, R>;
    using Field = WholeSpinors<Real, Lanes>;
    const unsigned i = unsigned(first_row()) + blockIdx.x * blockDim.x + threadIdx.x;
    const unsigned block = i / Lanes::COUNT, lane = i % Lanes::COUNT, site = block / 2, chirality = block % 2;
    if (site >= sites || outside_share(i)) return;
    HalfSpinor<Real, R> v;
    Field(x, nullptr).template load<ReadOnce>(v, site, chirality, lane);
    multiply_by<KIND>(matrices + size_t(block) * MATRIX_REALS<KIND>, v);
    Field(out, nullptr).store(v, site, chirality, lane);
}
