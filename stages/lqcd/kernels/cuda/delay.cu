// Keep the device busy for a while: what is started meanwhile waits, and then runs without waiting for the host.

extern "C" __device__ __forceinline__ unsigned long long nanoseconds() {
    unsigned long long now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    return now;
}

template <int UNUSED> __global__ void delay(unsigned long long duration) {
    const unsigned long long start = nanoseconds();
    while (nanoseconds() - start < duration) __nanosleep(1000);
}
