// Fields of 3x3 matrices through shared memory, a warp at a time, each lane with a matrix of its own. A thread that
// reads its matrix from global memory leaves gaps of a matrix between lanes; here neighbouring lanes copy
// neighbouring elements, and the lanes' reads from shared memory, a matrix (9 elements) apart, hit all banks.

#include "async_copy.cuh"
#include "matrix.cuh"
#include "share.cuh"

constexpr int WARP = 32, WARP_ELEMENTS = 9 * WARP;

// Start to copy matrix number `wanted` of `field`, a number per lane, into slot `lane` of `tile`.
template <class Real>
__device__ __forceinline__ void fetch(Complex<Real>* tile, const Complex<Real>* field, unsigned wanted) {
    constexpr int bytes = sizeof(Complex<Real>);
    const int lane = threadIdx.x % WARP;
    #pragma unroll
    for (int first = 0; first < WARP_ELEMENTS; first += WARP) {
        const int element = first + lane;
        const unsigned matrix = __shfl_sync(~0u, wanted, element / 9);
        copy_async<bytes>(tile + element, field + size_t(matrix) * 9 + element % 9, bytes);
    }
}

// Wait for all but the PENDING latest groups of copies; the tiles are then visible to the whole warp.
template <int PENDING> __device__ __forceinline__ void arrived() {
    wait_for_copies<PENDING>();
    __syncwarp();
}

// The matrix of this lane.
template <class Real> __device__ __forceinline__ Matrix<Real> mine(const Complex<Real>* tile) {
    return load<Real>(tile + threadIdx.x % WARP * 9);
}

// Call write(element, value) for every element of the first `count` lanes' matrices `m`, neighbouring lanes with
// neighbouring elements; no lane may read `tile` any more.
template <class Real, class Write>
__device__ __forceinline__ void spread(Complex<Real>* tile, const Matrix<Real>& m, int count, Write write) {
    const int lane = threadIdx.x % WARP;
    store<Real>(tile + lane * 9, m);
    __syncwarp();
    #pragma unroll
    for (int first = 0; first < WARP_ELEMENTS; first += WARP)
        if (first + lane < 9 * count) write(first + lane, tile[first + lane]);
}

// The run of matrices first, first + 1, ... that a warp works on: `number` is this lane's, repeated beyond the end.
struct Run {
    unsigned first, number;
    int count;

    // Warp after warp over `total` matrices; count 0: nothing left for this warp. A device takes its share of each
    // segment.
    static __device__ __forceinline__ Run of(unsigned total) {
        const unsigned start = segment_start(total), end = segment_end(total);
        Run run;
        run.first = start + (blockIdx.x * blockDim.x + threadIdx.x) / WARP * WARP;
        run.count = run.first < end ? min(end - run.first, unsigned(WARP)) : 0;
        run.number = min(run.first + threadIdx.x % WARP, end - 1);
        return run;
    }
};
