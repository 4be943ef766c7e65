// What falls to this device of a launch that several devices share (devices/partition.py): rows, slices and tiles.
// Where the whole lattice lies on one device, everything does, and nothing of this is compiled.

#ifdef SPREAD
struct Share {
    double* totals;     // room for the sums of each device, on the first one
    unsigned* arrived;  // devices that have left them, for each sum; zero before and after
    long long first_row, end_row;
    unsigned first_slice;
    unsigned first_layer;                          // of tiles
    int layer_step;                                // to the next, 1 or -1
    unsigned layers, edges, beside;
    unsigned in_chunk, mixed, reciprocal, ratio;   // numbers of `TileOrder`
    unsigned device, devices;                      // over which sums go
};
extern "C" __constant__ Share device_share;
#endif

__device__ __forceinline__ long long first_row() {
#ifdef SPREAD
    return device_share.first_row;
#else
    return 0;
#endif
}

__device__ __forceinline__ long long end_row(long long rows) {
#ifdef SPREAD
    return device_share.end_row;
#else
    return rows;
#endif
}

// The slice of rows that a block of this blockIdx.y works on.
__device__ __forceinline__ unsigned slice_index() {
#ifdef SPREAD
    return device_share.first_slice + blockIdx.y;
#else
    return blockIdx.y;
#endif
}

// Begin and end of what a device works on of `total` matrices in equal segments, which blockIdx.z counts: those of a
// direction and parity.
__device__ __forceinline__ unsigned segment_start(unsigned total) {
#ifdef SPREAD
    return blockIdx.z * (total / gridDim.z) + unsigned(device_share.first_row);
#else
    return 0;
#endif
}

__device__ __forceinline__ unsigned segment_end(unsigned total) {
#ifdef SPREAD
    return blockIdx.z * (total / gridDim.z) + unsigned(device_share.end_row);
#else
    return total;
#endif
}
