// Writes a few numbers into pinned memory of the host. A copy engine would do it, too, but the stream would wait for it.

__global__ void report(const double* values, double* host, int count) {
    for (int i = threadIdx.x; i < count; i += blockDim.x) host[i] = values[i];
}
