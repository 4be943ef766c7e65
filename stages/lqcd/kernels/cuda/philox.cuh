// Philox4x32-10 (Salmon, Moraes, Dror and Shaw, SC'11, doi:10.1145/2063384.2063405): four uniform 32-bit words for a
// counter and a key, the integers of stages/lqcd/kernels/random_numbers.py.

struct Words {
    unsigned w[4];
};

__device__ __forceinline__ Words philox4x32(Words c, unsigned k0, unsigned k1) {
    #pragma unroll
    for (int round = 0; round < 10; round++) {
        const unsigned high0 = __umulhi(0xD2511F53u, c.w[0]), low0 = 0xD2511F53u * c.w[0];
        const unsigned high1 = __umulhi(0xCD9E8D57u, c.w[2]), low1 = 0xCD9E8D57u * c.w[2];
        c = {high1 ^ c.w[1] ^ k0, low1, high0 ^ c.w[3] ^ k1, low0};
        k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
    return c;
}
