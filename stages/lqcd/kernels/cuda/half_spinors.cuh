// Spinors in 16 bits (half_field.cuh): codes lie as [site][spin][colour][rhs][2], scales as [site][rhs], one for the 24
// numbers of a site and right-hand side.

template <class Real, class Lanes> struct HalfSpinors {
    static constexpr int R = Lanes::R;
    static_assert(Lanes::CHUNK == R, "the right-hand sides of a lane are neighbours");
    using Codes = typename HalfVectors<R>::Codes;
    using Scales = typename HalfVectors<R>::Scales;

    Codes* codes;
    Scales* scales;

    __device__ __forceinline__ HalfSpinors(const void* codes, const float* scales)
        : codes(static_cast<Codes*>(const_cast<void*>(codes))),
          scales(reinterpret_cast<Scales*>(const_cast<float*>(scales))) {}

    template <class Access> __device__ __forceinline__ void load(Spinor<float, R>& psi, unsigned site, int lane) const {
        const unsigned at = site * Lanes::COUNT + lane, first = at + 11 * site * Lanes::COUNT;
        const Scales s = Access::read(scales + at);
        #pragma unroll
        for (int c = 0; c < 12; c++) {
            const Codes packed = Access::read(codes + first + c * Lanes::COUNT);
            #pragma unroll
            for (int r = 0; r < R; r++) {
                const Decoder decoder(reinterpret_cast<const float*>(&s)[r]);
                const unsigned both = reinterpret_cast<const unsigned*>(&packed)[r];
                psi.re[c / 3][c % 3][r] = decoder.low(both), psi.im[c / 3][c % 3][r] = decoder.high(both);
            }
        }
    }

    __device__ __forceinline__ void store(const Spinor<float, R>& psi, unsigned site, int lane) const {
        const unsigned at = site * Lanes::COUNT + lane, first = at + 11 * site * Lanes::COUNT;
        Scales s;
        float inverse[R];
        #pragma unroll
        for (int r = 0; r < R; r++) {
            float largest = 0;
            #pragma unroll
            for (int c = 0; c < 12; c++)
                largest = fmaxf(largest, fmaxf(fabsf(psi.re[c / 3][c % 3][r]), fabsf(psi.im[c / 3][c % 3][r])));
            const float scale = scale_for(largest);
            reinterpret_cast<float*>(&s)[r] = scale, inverse[r] = scale > 0 ? 1 / scale : 0;
        }
        __stcs(scales + at, s);
        #pragma unroll
        for (int c = 0; c < 12; c++) {
            Codes packed;
            #pragma unroll
            for (int r = 0; r < R; r++)
                reinterpret_cast<unsigned*>(&packed)[r] =
                    encoded(psi.re[c / 3][c % 3][r], psi.im[c / 3][c % 3][r], inverse[r]);
            __stcs(codes + first + c * Lanes::COUNT, packed);
        }
    }
};
