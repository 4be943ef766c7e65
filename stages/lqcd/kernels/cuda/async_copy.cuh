// Asynchronous copies from global to shared memory (cp.async, sm_80 and later).

__device__ __forceinline__ unsigned shared_address(void* shared) {
    return unsigned(__cvta_generic_to_shared(shared));
}

// Copy the first `valid` of BYTES (8 or 16) bytes and fill the rest with zeros.
template <int BYTES> __device__ __forceinline__ void copy_async(void* shared, const void* global, int valid) {
    if constexpr (BYTES == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)), "l"(global),
                     "r"(valid) : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(shared_address(shared)), "l"(global),
                     "r"(valid) : "memory");
}

// L2 policy of data that is read once: evicted before anything else.
__device__ __forceinline__ unsigned long long evict_first() {
    unsigned long long policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

// The shared address of `shared` in a form that the compiler cannot take apart. ptxas 13.0 splits an address into
// a uniform register and a thread's offset, and encodes that together with a cache policy wrongly: sm_90 stops with
// an illegal instruction. A shuffle from the thread's own lane hides the sum.
__device__ __forceinline__ unsigned opaque_shared_address(void* shared) {
    return __shfl_sync(__activemask(), shared_address(shared), threadIdx.x % 32);
}

// `shared` is an opaque_shared_address plus an offset known at compile time.
template <int BYTES>
__device__ __forceinline__ void copy_async_with(unsigned long long policy, unsigned shared, const void* global) {
    if constexpr (BYTES == 16)
        asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(shared), "l"(global),
                     "l"(policy) : "memory");
    else
        asm volatile("cp.async.ca.shared.global.L2::cache_hint [%0], [%1], %3, %2;" ::"r"(shared), "l"(global),
                     "l"(policy), "n"(BYTES) : "memory");
}

__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Wait until at most PENDING of the committed groups are still under way.
template <int PENDING> __device__ __forceinline__ void wait_for_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}
