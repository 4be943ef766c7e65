// Spinors in 16 bits (half_field.cuh): codes lie as [site][spin][colour][rhs][2], scales as [site][rhs], one for the 24
// numbers of a site and right-hand side.

#include "half_field.cuh"
#include "spinors.cuh"

template <class Real, class Lanes> struct HalfSpinors {
    static constexpr int R = Lanes::R;
    static constexpr bool ALONE = Lanes::N == 1;  // the codes of a site are three runs of 16 bytes
    static_assert(Lanes::CHUNK == R, "the right-hand sides of a lane are neighbours");
    using Codes = typename HalfVectors<R>::Codes;
    using Scales = typename HalfVectors<R>::Scales;

    Codes* codes;
    Scales* scales;

    __device__ __forceinline__ HalfSpinors(const void* codes, const float* scales)
        : codes(static_cast<Codes*>(const_cast<void*>(codes))),
          scales(reinterpret_cast<Scales*>(const_cast<float*>(scales))) {}

    template <class Access> __device__ __forceinline__ void load(Spinor<float, R>& psi, unsigned site, int lane) const {
        parts<Access, 12>(&psi.re[0][0][0], &psi.im[0][0][0], site, 0, lane);
    }

    template <class Access>
    __device__ __forceinline__ void load(HalfSpinor<float, R>& h, unsigned site, int chirality, int lane) const {
        parts<Access, 6>(&h.re[0][0][0], &h.im[0][0][0], site, 6 * chirality, lane);
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
        alignas(16) Codes packed[12];
        #pragma unroll
        for (int c = 0; c < 12; c++) {
            #pragma unroll
            for (int r = 0; r < R; r++)
                reinterpret_cast<unsigned*>(packed + c)[r] =
                    encoded(psi.re[c / 3][c % 3][r], psi.im[c / 3][c % 3][r], inverse[r]);
            if constexpr (!ALONE) __stcs(codes + first + c * Lanes::COUNT, packed[c]);
        }
        if constexpr (ALONE)
            #pragma unroll
            for (int i = 0; i < 3; i++)
                __stcs(reinterpret_cast<uint4*>(codes + first) + i, reinterpret_cast<const uint4*>(packed)[i]);
    }

  private:
    // COUNT components from the first on.
    template <class Access, int COUNT>
    __device__ __forceinline__ void parts(float* re, float* im, unsigned site, int first, int lane) const {
        const unsigned at = site * Lanes::COUNT + lane;
        const Codes* from = codes + (at + (11 * site + first) * Lanes::COUNT);
        const Scales s = Access::read(scales + at);
        alignas(16) Codes packed[COUNT];
        if constexpr (ALONE) {
            using Run = typename HalfVectors<COUNT % 4 == 0 ? 4 : 2>::Codes;
            #pragma unroll
            for (int i = 0; i < COUNT * int(sizeof(Codes)) / int(sizeof(Run)); i++)
                reinterpret_cast<Run*>(packed)[i] = Access::read(reinterpret_cast<const Run*>(from) + i);
        } else {
            #pragma unroll
            for (int c = 0; c < COUNT; c++) packed[c] = Access::read(from + c * Lanes::COUNT);
        }
        #pragma unroll
        for (int c = 0; c < COUNT; c++)
            #pragma unroll
            for (int r = 0; r < R; r++) {
                const Decoder decoder(reinterpret_cast<const float*>(&s)[r]);
                const unsigned both = reinterpret_cast<const unsigned*>(packed + c)[r];
                re[c * R + r] = decoder.low(both), im[c * R + r] = decoder.high(both);
            }
    }
};
