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

// Codes lie as [site][colour][rhs][2], scales as [site][rhs]: one for the 6 numbers of a site and right-hand side.
template <class Real, class Lanes> struct HalfField {
    static constexpr int R = Lanes::R;
    static_assert(Lanes::CHUNK == R, "the right-hand sides of a lane are neighbours");
    using Codes = typename HalfVectors<R>::Codes;
    using Scales = typename HalfVectors<R>::Scales;

    Codes* codes;
    Scales* scales;

    __device__ __forceinline__ HalfField(const void* codes, const float* scales)
        : codes(static_cast<Codes*>(const_cast<void*>(codes))),
          scales(reinterpret_cast<Scales*>(const_cast<float*>(scales))) {}

    template <class Access> __device__ __forceinline__ void load(ColorVectors<float, R>& v, unsigned site, int lane) const {
        const unsigned at = site * Lanes::COUNT + lane, first = at + 2 * site * Lanes::COUNT;
        const Scales s = Access::read(scales + at);
        Codes packed[3];
        #pragma unroll
        for (int c = 0; c < 3; c++) packed[c] = Access::read(codes + first + c * Lanes::COUNT);
        #pragma unroll
        for (int r = 0; r < R; r++) {
            const Decoder decoder(reinterpret_cast<const float*>(&s)[r]);
            #pragma unroll
            for (int c = 0; c < 3; c++) {
                const unsigned both = reinterpret_cast<const unsigned*>(&packed[c])[r];
                v.re[c][r] = decoder.low(both), v.im[c][r] = decoder.high(both);
            }
        }
    }

    __device__ __forceinline__ void store(const ColorVectors<float, R>& v, unsigned site, int lane) const {
        const unsigned at = site * Lanes::COUNT + lane, first = at + 2 * site * Lanes::COUNT;
        Codes packed[3];
        Scales s;
        #pragma unroll
        for (int r = 0; r < R; r++) {
            float largest = 0;
            #pragma unroll
            for (int c = 0; c < 3; c++) largest = fmaxf(largest, fmaxf(fabsf(v.re[c][r]), fabsf(v.im[c][r])));
            const float scale = scale_for(largest), inverse = scale > 0 ? 1 / scale : 0;
            reinterpret_cast<float*>(&s)[r] = scale;
            #pragma unroll
            for (int c = 0; c < 3; c++)
                reinterpret_cast<unsigned*>(&packed[c])[r] = encoded(v.re[c][r], v.im[c][r], inverse);
        }
        __stcs(scales + at, s);
        #pragma unroll
        for (int c = 0; c < 3; c++) __stcs(codes + first + c * Lanes::COUNT, packed[c]);
    }
};
