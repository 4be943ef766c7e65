// What falls to this device of a launch that several devices share (devices/partition.py): rows, slices and tiles.
// Where the whole lattice lies on one device, everything does, and nothing of this is compiled.

#ifdef SPREAD
struct Share {
    double* totals;     // room for the sums of each device, on the first one
    unsigned* arrived;  // devices that have left them, for each sum; zero before and after
    long long first_row, end_row;
    unsigned first_slice, segment_rows;
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

// Whether a row is beyond those of this device, of several.
__device__ __forceinline__ bool outside_share(long long row) {
#ifdef SPREAD
    return row >= device_share.end_row;
#else
    return false;
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

// Begin and end of what a device works on of `total` entries in equal segments, which blockIdx.z counts: matrices of a
// direction and parity.
template <class Number> __device__ __forceinline__ Number segment_start(Number total) {
#ifdef SPREAD
    return blockIdx.z * (total / gridDim.z) + Number(device_share.first_row);
#else
    return 0;
#endif
}

template <class Number> __device__ __forceinline__ Number segment_end(Number total) {
#ifdef SPREAD
    return blockIdx.z * (total / gridDim.z) + Number(device_share.end_row);
#else
    return total;
#endif
}

// The number among all blocks along an axis, `PER_SITE` for each site, of block i of this device, which has its share of
// each segment of the sites.
template <int PER_SITE> __device__ __forceinline__ unsigned block_of_share(unsigned i) {
#ifdef SPREAD
    const unsigned own = unsigned(device_share.end_row - device_share.first_row), site = i / PER_SITE;
    const unsigned place = device_share.segment_rows * (site / own) + unsigned(device_share.first_row) + site % own;
    return place * PER_SITE + i % PER_SITE;
#else
    return i;
#endif
}
