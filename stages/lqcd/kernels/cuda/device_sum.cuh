// The end of a sum over several devices: each leaves its own, and the last to do so adds them in their order, so that
// the bits do not depend on which it was.

#include "share.cuh"

// All threads of one block of each device call this for each of the sums that `slot` counts; those that `hold` values
// have the device's sums of a column, and on the last device, where this is true, the totals afterwards. One device is
// the last one at once. add(values, other): the sum of what two devices have.
template <int COLUMNS, int VALUES, class Add>
__device__ __forceinline__ bool sum_over_devices(double (&values)[VALUES], int column, bool hold, unsigned slot, Add add) {
#ifdef SPREAD
    const unsigned devices = device_share.devices;
    if (devices == 1) return true;
    __shared__ bool last_device;
    volatile double* totals = device_share.totals + size_t(slot) * devices * (VALUES * COLUMNS) + column;
    if (hold)
        #pragma unroll
        for (int v = 0; v < VALUES; v++) totals[(device_share.device * VALUES + v) * COLUMNS] = values[v];
    __threadfence_system();
    __syncthreads();
    if (threadIdx.x == 0) {
        unsigned* arrived = device_share.arrived + slot;
        last_device = atomicAdd_system(arrived, 1) == devices - 1;
        if (last_device) atomicExch_system(arrived, 0);
    }
    __syncthreads();
    if (!last_device) return false;
    __threadfence_system();
    if (hold) {
        #pragma unroll
        for (int v = 0; v < VALUES; v++) values[v] = 0;
        for (unsigned device = 0; device < devices; device++) {
            double other[VALUES];
            #pragma unroll
            for (int v = 0; v < VALUES; v++) other[v] = totals[(device * VALUES + v) * COLUMNS];
            add(values, other);
        }
    }
#endif
    return true;
}

template <int COLUMNS, int VALUES>
__device__ __forceinline__ bool sum_over_devices(double (&values)[VALUES], int column, bool hold, unsigned slot) {
    return sum_over_devices<COLUMNS>(values, column, hold, slot, [](double (&to)[VALUES], const double (&other)[VALUES]) {
        #pragma unroll
        for (int v = 0; v < VALUES; v++) to[v] += other[v];
    });
}
