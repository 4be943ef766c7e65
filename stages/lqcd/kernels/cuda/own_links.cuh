// HISQ's links as a thread reads its own, without shared memory: fat ones, and long ones that are one real number, `scale`,
// times U(3) matrices, in nine numbers each (nine_reals.cuh). For one right-hand side, or a few that read them together.
// What belongs to the sites of a tile lies [16 bytes of a site][site], so that a warp reads whole lines; AHEAD links are
// on their way while one is used. `d` is a direction, known when the kernel is compiled.

#include "nine_reals.cuh"

template <class Links> struct OwnLink {
    const Links& links;
    int d;
};

template <class Links, class Real, int R>
__device__ __forceinline__ void multiply_add(ColorVectors<Real, R>& sum, const OwnLink<Links>& u, const ColorVectors<Real, R>& v) {
    const int i = u.d / 4 * 2 + u.d % 2;
    if (u.d % 4 < 2) multiply_add(sum, u.links.fat_link(i), v);
    else multiply_add(sum, u.links.long_link(i), v);
}

// What both forms share; `i` is 2 mu and the sign.
template <class Derived, class Real, int MU_BYTES_, int TILE_SITES, int AHEAD, class Access> struct OwnLinks {
    static constexpr bool IN_FIELDS = false, OWN = true;
    static constexpr int PER_MU = 4, MU_BYTES = MU_BYTES_, TILE_BYTES = 4 * TILE_SITES * MU_BYTES, SHARED_BYTES = 0;
    const unsigned char* tile;
    int site;
    Real scale;

    __device__ __forceinline__ void fetch(const unsigned char* tile_, int site_in_tile, Real scale_) {
        tile = tile_, site = site_in_tile, scale = scale_;
        #pragma unroll
        for (int d = 0; d < AHEAD; d++) request(d);
    }

    template <int MU> __device__ __forceinline__ void arrive() const {}

    template <bool BACK> __device__ __forceinline__ OwnLink<Derived> link(int d, int) {
        if (d + AHEAD < 16) request(d + AHEAD);
        return {static_cast<const Derived&>(*this), d};
    }

    // Values that begin `before` bytes of a site into those of a mu.
    template <class V> __device__ __forceinline__ V read(int mu, int before) const {
        return Access::read(reinterpret_cast<const V*>(tile + TILE_SITES * (mu * MU_BYTES + before)) + site);
    }

    __device__ __forceinline__ Rotations<Real> scaled(Rotations<Real> u) const {
        #pragma unroll
        for (int j = 0; j < 3; j++) u.first[j].cosine *= scale, u.first[j].sine *= scale;
        return u;
    }

  private:
    __device__ __forceinline__ void request(int d) {
        auto& self = static_cast<Derived&>(*this);
        if (d % 4 < 2) self.request_fat(d / 4, d % 2);
        else self.request_long(d / 4, d % 2);
    }
};

// A matrix in registers, row by row.
template <class Real> struct OwnMatrix {
    Complex<Real> elements[9];
    __device__ __forceinline__ Complex<Real> at(int i, int j) const { return elements[3 * i + j]; }
};

// Complex numbers of Real, and nine tangents of half angles. Of a mu: whole 16 bytes of fat and long links, forward and
// backward, then what is left of the fat ones, then of the long ones.
template <class Real, int TILE_SITES> struct Reals9 {
    using Vector = typename VectorOf<Real, sizeof(Real) == 4 ? 2 : 1>::type;
    static constexpr int WIDTH = 16 / sizeof(Real);
    static constexpr int FAT = 18 / WIDTH, FAT_REST = 18 % WIDTH, LONG = PARAMETERS / WIDTH, LONG_REST = PARAMETERS % WIDTH;
    static constexpr int RESTS = 32 * (FAT + LONG), LONG_RESTS = RESTS + 2 * FAT_REST * int(sizeof(Real));
    static constexpr int MU_BYTES = 2 * 27 * sizeof(Real);

    // Where real k of a link lies among the tile's, in Reals, for site `site`.
    static __device__ __forceinline__ int fat_at(int sign, int k, int site) {
        if (k < FAT * WIDTH) return ((sign * FAT + k / WIDTH) * TILE_SITES + site) * WIDTH + k % WIDTH;
        return (RESTS / int(sizeof(Real)) + sign * FAT_REST) * TILE_SITES + site * FAT_REST + k - FAT * WIDTH;
    }
    static __device__ __forceinline__ int long_at(int sign, int k, int site) {
        if (k < LONG * WIDTH) return ((2 * FAT + sign * LONG + k / WIDTH) * TILE_SITES + site) * WIDTH + k % WIDTH;
        return (LONG_RESTS / int(sizeof(Real)) + sign * LONG_REST) * TILE_SITES + site * LONG_REST + k - LONG * WIDTH;
    }
};

__device__ __forceinline__ void take(double2 v, double* to) { to[0] = v.x, to[1] = v.y; }
__device__ __forceinline__ void take(float4 v, float* to) { to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w; }

template <class Real, int DIRECTIONS, int TILE_SITES, int SITES, int THREADS>
struct Links9 : OwnLinks<Links9<Real, DIRECTIONS, TILE_SITES, SITES, THREADS>, Real, Reals9<Real, TILE_SITES>::MU_BYTES,
                         TILE_SITES, sizeof(Real) == 4 ? 2 : 1, ReadOnce> {
    static_assert(DIRECTIONS == 16, "long links are HISQ's");
    using Form = Reals9<Real, TILE_SITES>;
    Real fat[8][18], longs[8][PARAMETERS];

    __device__ __forceinline__ void request_fat(int mu, int sign) {
        Real(&to)[18] = fat[2 * mu + sign];
        #pragma unroll
        for (int k = 0; k < Form::FAT; k++)
            take(this->template read<typename Form::Vector>(mu, (sign * Form::FAT + k) * 16), to + k * Form::WIDTH);
        if constexpr (Form::FAT_REST == 2) {
            const auto rest = this->template read<Complex<Real>>(mu, Form::RESTS + sign * 2 * int(sizeof(Real)));
            to[16] = rest.x, to[17] = rest.y;
        }
    }

    __device__ __forceinline__ void request_long(int mu, int sign) {
        Real(&to)[PARAMETERS] = longs[2 * mu + sign];
        #pragma unroll
        for (int k = 0; k < Form::LONG; k++)
            take(this->template read<typename Form::Vector>(mu, (2 * Form::FAT + sign * Form::LONG + k) * 16), to + k * Form::WIDTH);
        static_assert(Form::LONG_REST == 1, "nine is odd");
        to[8] = this->template read<Real>(mu, Form::LONG_RESTS + sign * int(sizeof(Real)));
    }

    __device__ __forceinline__ OwnMatrix<Real> fat_link(int i) const {
        OwnMatrix<Real> u;
        #pragma unroll
        for (int e = 0; e < 9; e++) u.elements[e] = {fat[i][2 * e], fat[i][2 * e + 1]};
        return u;
    }

    __device__ __forceinline__ Rotations<Real> long_link(int i) const {
        Rotations<Real> u;
        #pragma unroll
        for (int k = 0; k < PARAMETERS; k++) parameter(u, k) = turn_of(longs[i][k]);
        return this->scaled(u);
    }
};

// A fat and a long link in 64 bytes: 18 numbers of 20 bits one after the other in words 0 to 11, number k from bit 20 k on,
// value = 2^(exponent - 127) (code - 2^19); bits 8 to 15 of word 11 are the exponent, its upper half is the last angle, words
// 12 to 15 are the others. Phases are 2 pi / 2^16 (code - 2^15), the other angles pi / 2 / (2^16 - 1) code.
struct Packed9 {
    static constexpr int WORDS = 12;
    static constexpr unsigned MASK = 0xfffff, ZERO = 0x80000;

    static __device__ __forceinline__ unsigned code(const unsigned (&w)[WORDS], int k) {
        const int first = 20 * k / 32, shift = 20 * k % 32;
        const unsigned bits = shift <= 12 ? w[first] >> shift : __funnelshift_r(w[first], w[first + 1], shift);
        return bits & MASK;
    }

    static __device__ __forceinline__ Turn<float> turn(unsigned code, bool phase) {
        const float number = __uint_as_float(0x4b000000 | code) - (phase ? 8421376.0f : 8388608.0f);
        Turn<float> turn;
        __sincosf(number * (phase ? 9.58737992e-5f : 2.39688154e-5f), &turn.sine, &turn.cosine);
        return turn;
    }
};

template <class Real, int DIRECTIONS, int TILE_SITES, int SITES, int THREADS>
struct ShortLinks9 : OwnLinks<ShortLinks9<Real, DIRECTIONS, TILE_SITES, SITES, THREADS>, Real, 128, TILE_SITES, 4, ReadLast> {
    static_assert(DIRECTIONS == 16, "long links are HISQ's");
    unsigned fat[8][Packed9::WORDS], longs[8][4];

    // Of a mu: three 16 bytes of the fat links, forward and backward, then one of the long ones.
    __device__ __forceinline__ void request_fat(int mu, int sign) {
        #pragma unroll
        for (int k = 0; k < 3; k++) keep(this->template read<uint4>(mu, (3 * sign + k) * 16), fat[2 * mu + sign] + 4 * k);
    }
    __device__ __forceinline__ void request_long(int mu, int sign) {
        keep(this->template read<uint4>(mu, (6 + sign) * 16), longs[2 * mu + sign]);
    }

    __device__ __forceinline__ OwnMatrix<float> fat_link(int i) const {
        const float scale = __uint_as_float(fat[i][11] << 15 & 0x7f800000), shift = -8912896 * scale;  // 2^23 + 2^19
        OwnMatrix<float> u;
        #pragma unroll
        for (int e = 0; e < 9; e++) u.elements[e] = {value(i, 2 * e, scale, shift), value(i, 2 * e + 1, scale, shift)};
        return u;
    }

    __device__ __forceinline__ Rotations<float> long_link(int i) const {
        Rotations<float> u;
        #pragma unroll
        for (int k = 0; k < PARAMETERS; k++) {
            const unsigned code = k == 8 ? fat[i][11] >> 16 : k % 2 ? longs[i][k / 2] >> 16 : longs[i][k / 2] & 0xffff;
            parameter(u, k) = Packed9::turn(code, k < PHASES);
        }
        return this->scaled(u);
    }

  private:
    static __device__ __forceinline__ void keep(uint4 v, unsigned* to) { to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w; }

    __device__ __forceinline__ float value(int i, int k, float scale, float shift) const {
        return __uint_as_float(Packed9::code(fat[i], k) | 0x4b000000) * scale + shift;
    }
};
