// 16-bit numbers with a scale: value = scale (code - 32768), codes 1 to 65535.
//
// A code becomes a float by one byte permutation and one FMA: behind the bits of 2^23 it is the float 2^23 + code.
// The scale has 15 significant bits, so that scale (2^23 + 2^15), 2^15 257 scale, is exact and the FMA rounds once.

constexpr float CODE_ZERO = 8421376;  // 2^23 + 2^15

struct Decoder {
    float scale, shift;

    __device__ __forceinline__ explicit Decoder(float s) : scale(s), shift(-CODE_ZERO * s) {}
    __device__ __forceinline__ float low(unsigned codes) const { return value(__byte_perm(codes, 0x4b00, 0x5410)); }
    __device__ __forceinline__ float high(unsigned codes) const { return value(__byte_perm(codes, 0x4b00, 0x5432)); }

  private:
    __device__ __forceinline__ float value(unsigned bits) const { return __uint_as_float(bits) * scale + shift; }
};

// The scale for numbers up to `largest` in absolute value: rounded up to 15 bits, so that codes stay in range.
__device__ __forceinline__ float scale_for(float largest) {
    return __uint_as_float(__float_as_uint(largest / 32767) + 0x1ff & ~0x1ffu);
}

__device__ __forceinline__ unsigned encoded(float re, float im, float inverse_scale) {
    const unsigned low = __float2int_rn(re * inverse_scale) + 32768, high = __float2int_rn(im * inverse_scale) + 32768;
    return low & 0xffff | high << 16;
}

// Vectors of R complex numbers of 16 + 16 bits and of R scales.
template <int R> struct HalfVectors;
template <> struct HalfVectors<1> { using Codes = unsigned; using Scales = float; };
template <> struct HalfVectors<2> { using Codes = uint2; using Scales = float2; };
template <> struct HalfVectors<4> { using Codes = uint4; using Scales = float4; };
