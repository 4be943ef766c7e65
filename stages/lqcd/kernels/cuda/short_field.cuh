// The 3 colours of a site and right-hand side in 16 bytes, [site][rhs] of four words, in two codes:
//
//   Short16   words 0 to 2: a colour each, real part in the low half; word 3: a scale, a power of two as a float.
//             value = scale (code - 2^15), codes 1 to 2^16 - 1: 13 instructions, for what a product reads 16 times.
//   Short20   low 20 bits of the words: real and imaginary part of colours 0 and 1; the upper 12 bits of words 0 and 1
//             hold the real part of colour 2 and half of an exponent, those of words 2 and 3 the rest.
//             value = 2^(exponent - 127) (code - 2^19), codes 1 to 2^20 - 1: for what sums run through.
//
// A code behind the bits of 2^23 is the float 2^23 + code, so that one FMA decodes it.

#include "color_vectors.cuh"
#include "half_field.cuh"
#include "share.cuh"

template <int R> __device__ __forceinline__ float largest_part(const ColorVectors<float, R>& v, int r) {
    float largest = 0;
    #pragma unroll
    for (int c = 0; c < 3; c++) largest = fmaxf(largest, fmaxf(fabsf(v.re[c][r]), fabsf(v.im[c][r])));
    return largest;
}

// The least power of two by which numbers up to `largest` are codes up to LIMIT, as the exponent of a float: 1 or more,
// so that what is smaller than 2^-126 LIMIT becomes zero or rounds to few bits.
__device__ __forceinline__ unsigned exponent_for(float largest, int limit) {
    return max(1, __float_as_uint(largest * (1.0f / limit)) + 0x7fffff >> 23);
}

__device__ __forceinline__ float power_of_two(unsigned exponent) { return __uint_as_float(exponent << 23); }

struct Short16 {
    template <int R> static __device__ __forceinline__ void decode(uint4 w, ColorVectors<float, R>& v, int r) {
        const Decoder decoder(__uint_as_float(w.w));
        v.re[0][r] = decoder.low(w.x), v.im[0][r] = decoder.high(w.x);
        v.re[1][r] = decoder.low(w.y), v.im[1][r] = decoder.high(w.y);
        v.re[2][r] = decoder.low(w.z), v.im[2][r] = decoder.high(w.z);
    }

    template <int R> static __device__ __forceinline__ uint4 encode(const ColorVectors<float, R>& v, int r) {
        const unsigned exponent = exponent_for(largest_part(v, r), 32767);
        const float inverse = power_of_two(254 - exponent);
        return {encoded(v.re[0][r], v.im[0][r], inverse), encoded(v.re[1][r], v.im[1][r], inverse),
                encoded(v.re[2][r], v.im[2][r], inverse), exponent << 23};
    }
};

struct Short20 {
    static constexpr unsigned MASK = 0xfffff, ZERO = 0x80000;

    template <int R> static __device__ __forceinline__ void decode(uint4 w, ColorVectors<float, R>& v, int r) {
        const float scale = __uint_as_float((w.y >> 28 | w.w >> 24 & 0xf0) << 23), shift = -8912896 * scale;  // 2^23 + 2^19
        const auto value = [&](unsigned code) { return __uint_as_float(code | 0x4b000000) * scale + shift; };
        v.re[0][r] = value(w.x & MASK), v.im[0][r] = value(w.y & MASK);
        v.re[1][r] = value(w.z & MASK), v.im[1][r] = value(w.w & MASK);
        v.re[2][r] = value(w.x >> 20 | w.y >> 8 & 0xff000), v.im[2][r] = value(w.z >> 20 | w.w >> 8 & 0xff000);
    }

    template <int R> static __device__ __forceinline__ uint4 encode(const ColorVectors<float, R>& v, int r) {
        const unsigned exponent = exponent_for(largest_part(v, r), 524287);
        const float inverse = power_of_two(254 - exponent);
        const auto code = [&](float value) { return unsigned(__float2int_rn(value * inverse) + ZERO); };
        const unsigned re = code(v.re[2][r]), im = code(v.im[2][r]);
        return {code(v.re[0][r]) | re << 20, code(v.im[0][r]) | re >> 12 << 20 | exponent << 28,
                code(v.re[1][r]) | im << 20, code(v.im[1][r]) | im >> 12 << 20 | exponent >> 4 << 28};
    }
};

// As WholeField of color_vectors.cuh.
template <class Code, class Lanes> struct ShortField {
    uint4* words;

    __device__ __forceinline__ explicit ShortField(const void* values)
        : words(static_cast<uint4*>(const_cast<void*>(values))) {}

    template <class Access>
    __device__ __forceinline__ void load(ColorVectors<float, Lanes::R>& v, unsigned site, int lane) const {
        uint4 read[Lanes::R];
        #pragma unroll
        for (int r = 0; r < Lanes::R; r++) read[r] = Access::read(words + (first(site, lane) + offset(r)));
        #pragma unroll
        for (int r = 0; r < Lanes::R; r++) Code::decode(read[r], v, r);
    }

    __device__ __forceinline__ void store(const ColorVectors<float, Lanes::R>& v, unsigned site, int lane) const {
        #pragma unroll
        for (int r = 0; r < Lanes::R; r++) __stcs(words + (first(site, lane) + offset(r)), Code::encode(v, r));
    }

  private:
    static __device__ __forceinline__ unsigned first(unsigned site, int lane) { return site * Lanes::N + lane * Lanes::CHUNK; }
    static __device__ constexpr int offset(int r) { return r / Lanes::CHUNK * Lanes::COUNT * Lanes::CHUNK + r % Lanes::CHUNK; }
};

// The vector that this thread of a block of THREADS takes, i % N its right-hand side and i / N its site, where a device
// works on its own share of the sites; false beyond.
template <int N, int THREADS> __device__ __forceinline__ bool own_vector(long long& i, long long sites) {
    i = first_row() * N + blockIdx.x * (long long)THREADS + threadIdx.x;
    return i < end_row(sites) * N;
}

// Right-hand side i % N of site i / N of a complex field [site][3][N].
template <int N> __device__ __forceinline__ void load_colors(ColorVectors<float, 1>& v, const float2* field, long long i) {
    const float2* first = field + (i / N * 3 * N + i % N);
    #pragma unroll
    for (int c = 0; c < 3; c++) unpack(__ldcs(first + c * N), v.re[c], v.im[c]);
}

template <int N> __device__ __forceinline__ void store_colors(const ColorVectors<float, 1>& v, float2* field, long long i) {
    float2* first = field + (i / N * 3 * N + i % N);
    #pragma unroll
    for (int c = 0; c < 3; c++) __stcs(first + c * N, float2{v.re[c][0], v.im[c][0]});
}
