// The 4 spins and 3 colours of R right-hand sides of one site in the DeGrand-Rossi basis (stages/lqcd/kernels/gamma.py),
// their projections to two spins, and how fields keep them in memory: as complex numbers of the arithmetic
// (WholeSpinors) or in 16 bits with a scale (HalfSpinors). A lane's right-hand sides are neighbours (Lanes).

#include "color_vectors.cuh"

template <class Real, int R> struct Spinor {
    Real re[4][3][R], im[4][3][R];
};

// Two spins: (1 + e gamma_mu) psi is given by its upper two.
template <class Real, int R> struct HalfSpinor {
    Real re[2][3][R], im[2][3][R];
};

// gamma_mu takes spin partner(s), times i^phase(s), to the upper spin s.
template <int MU> struct Gamma {
    static __device__ constexpr int partner(int s) { return MU < 2 ? 3 - s : 2 + s; }
    static __device__ constexpr int phase(int s) {
        return MU == 0 ? 1 : MU == 1 ? (s == 0 ? 2 : 0) : MU == 2 ? (s == 0 ? 1 : 3) : 0;
    }
};

// (re, im) += i^POWER (x, y)
template <class Real> __device__ __forceinline__ void add_turned(int power, Real& re, Real& im, Real x, Real y) {
    switch (power & 3) {
    case 0: re += x, im += y; break;
    case 1: re -= y, im += x; break;
    case 2: re -= x, im -= y; break;
    case 3: re += y, im -= x; break;
    }
}

// Upper spins of (1 + E gamma_MU) psi.
template <int MU, int E, class Real, int R>
__device__ __forceinline__ void project(HalfSpinor<Real, R>& h, const Spinor<Real, R>& psi) {
    #pragma unroll
    for (int s = 0; s < 2; s++)
        #pragma unroll
        for (int c = 0; c < 3; c++)
            #pragma unroll
            for (int r = 0; r < R; r++) {
                const int below = Gamma<MU>::partner(s);
                h.re[s][c][r] = psi.re[s][c][r], h.im[s][c][r] = psi.im[s][c][r];
                add_turned(Gamma<MU>::phase(s) + 1 - E, h.re[s][c][r], h.im[s][c][r], psi.re[below][c][r],
                           psi.im[below][c][r]);
            }
}

// sum += (1 + E gamma_MU) psi, of which h gives the upper spins, after the link u.
template <int MU, int E, class Real, int R, class Link>
__device__ __forceinline__ void carry(Spinor<Real, R>& sum, const Link& u, const HalfSpinor<Real, R>& h) {
    #pragma unroll
    for (int i = 0; i < 3; i++) {
        Complex<Real> row[3];
        u.row(i, row);
        #pragma unroll
        for (int s = 0; s < 2; s++) {
            Real re[R] = {}, im[R] = {};
            #pragma unroll
            for (int j = 0; j < 3; j++)
                #pragma unroll
                for (int r = 0; r < R; r++) {
                    re[r] += row[j].x * h.re[s][j][r];
                    re[r] -= row[j].y * h.im[s][j][r];
                    im[r] += row[j].x * h.im[s][j][r];
                    im[r] += row[j].y * h.re[s][j][r];
                }
            const int below = Gamma<MU>::partner(s);
            #pragma unroll
            for (int r = 0; r < R; r++) {
                sum.re[s][i][r] += re[r], sum.im[s][i][r] += im[r];
                add_turned(1 - E - Gamma<MU>::phase(s), sum.re[below][i][r], sum.im[below][i][r], re[r], im[r]);
            }
        }
    }
}

// body(spin, colour, right-hand side) for all of them of two spins.
template <int R, class Body> __device__ __forceinline__ void each_of_half(Body body) {
    #pragma unroll
    for (int s = 0; s < 2; s++)
        #pragma unroll
        for (int c = 0; c < 3; c++)
            #pragma unroll
            for (int r = 0; r < R; r++) body(s, c, r);
}

// Spins 2 CHIRALITY and 2 CHIRALITY + 1.
template <class Real, int R> __device__ __forceinline__ HalfSpinor<Real, R> chiral(const Spinor<Real, R>& psi, int chirality) {
    HalfSpinor<Real, R> h;
    each_of_half<R>([&](int s, int c, int r) {
        h.re[s][c][r] = psi.re[2 * chirality + s][c][r], h.im[s][c][r] = psi.im[2 * chirality + s][c][r];
    });
    return h;
}

template <class Real, int R>
__device__ __forceinline__ void set_chiral(Spinor<Real, R>& psi, int chirality, const HalfSpinor<Real, R>& h) {
    each_of_half<R>([&](int s, int c, int r) {
        psi.re[2 * chirality + s][c][r] = h.re[s][c][r], psi.im[2 * chirality + s][c][r] = h.im[s][c][r];
    });
}

// v = a w + b v
template <class Real, int R>
__device__ __forceinline__ void combine(HalfSpinor<Real, R>& v, Real b, Real a, const HalfSpinor<Real, R>& w) {
    each_of_half<R>([&](int s, int c, int r) {
        v.re[s][c][r] = a * w.re[s][c][r] + b * v.re[s][c][r];
        v.im[s][c][r] = a * w.im[s][c][r] + b * v.im[s][c][r];
    });
}

// [site][spin][colour][rhs], complex numbers of Real. Vectors span right-hand sides, or components where N = 1.
template <class Real, class Lanes> struct WholeSpinors {
    static constexpr int R = Lanes::R, WIDTH = vector_width<Real>(Lanes::N, R);
    static constexpr bool ALONE = Lanes::N == 1 && sizeof(Real) == 4;
    static constexpr int PER_LANE = R / WIDTH, PER_COMPONENT = Lanes::N / WIDTH;
    using Vector = ::Vector<Real, ALONE ? 2 : WIDTH>;

    Vector* vectors;

    __device__ __forceinline__ WholeSpinors(const void* values, const float*)
        : vectors(static_cast<Vector*>(const_cast<void*>(values))) {}

    template <class Access> __device__ __forceinline__ void load(Spinor<Real, R>& psi, unsigned site, int lane) const {
        parts<Access, 12>(&psi.re[0][0][0], &psi.im[0][0][0], site, 0, lane);
    }

    template <class Access>
    __device__ __forceinline__ void load(HalfSpinor<Real, R>& h, unsigned site, int chirality, int lane) const {
        parts<Access, 6>(&h.re[0][0][0], &h.im[0][0][0], site, 6 * chirality, lane);
    }

    __device__ __forceinline__ void store(const Spinor<Real, R>& psi, unsigned site, int lane) const {
        put<12>(&psi.re[0][0][0], &psi.im[0][0][0], site, 0, lane);
    }

    __device__ __forceinline__ void store(const HalfSpinor<Real, R>& h, unsigned site, int chirality, int lane) const {
        put<6>(&h.re[0][0][0], &h.im[0][0][0], site, 6 * chirality, lane);
    }

  private:
    template <int COUNT>
    __device__ __forceinline__ void put(const Real* re, const Real* im, unsigned site, int first, int lane) const {
        if constexpr (ALONE) {
            #pragma unroll
            for (int c = 0; c < COUNT; c += 2) {
                Vector packed;
                pack(packed, re + c, im + c);
                __stcs(vectors + site * 6 + (first + c) / 2, packed);
            }
        } else {
            Vector* to = vectors + (site * (12 * PER_COMPONENT) + lane * PER_LANE);
            #pragma unroll
            for (int c = 0; c < COUNT; c++)
                #pragma unroll
                for (int i = 0; i < PER_LANE; i++) {
                    Vector packed;
                    pack(packed, re + c * R + i * WIDTH, im + c * R + i * WIDTH);
                    __stcs(to + (first + c) * PER_COMPONENT + i, packed);
                }
        }
    }

    // COUNT components from the first on.
    template <class Access, int COUNT>
    __device__ __forceinline__ void parts(Real* re, Real* im, unsigned site, int first, int lane) const {
        if constexpr (ALONE) {
            const Vector* from = vectors + site * 6 + first / 2;
            #pragma unroll
            for (int c = 0; c < COUNT; c += 2) unpack(Access::read(from + c / 2), re + c, im + c);
        } else {
            const Vector* from = vectors + (site * (12 * PER_COMPONENT) + lane * PER_LANE);
            #pragma unroll
            for (int c = 0; c < COUNT; c++)
                #pragma unroll
                for (int i = 0; i < PER_LANE; i++)
                    unpack(Access::read(from + (first + c) * PER_COMPONENT + i), re + c * R + i * WIDTH, im + c * R + i * WIDTH);
        }
    }
};
