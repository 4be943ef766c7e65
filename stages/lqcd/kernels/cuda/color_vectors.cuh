// The 3 colours of R right-hand sides of one site, as a thread holds them, and how fields keep them in memory:
// as complex numbers of the arithmetic (WholeField) or in 16 bytes each (short_field.cuh).

#include "complex.cuh"

// How the N right-hand sides of a site are spread over threads: a lane owns R of them, in chunks of CHUNK
// neighbours; chunk k of a lane is COUNT chunks further on.
template <int N_, int R_, int CHUNK_> struct Lanes {
    static_assert(N_ % R_ == 0, "a thread owns R right-hand sides");
    static_assert(R_ % CHUNK_ == 0, "R right-hand sides are whole chunks");
    static constexpr int N = N_, R = R_, CHUNK = CHUNK_, COUNT = N / R, CHUNKS = R / CHUNK;
};

template <class Real, int R> struct ColorVectors {
    Real re[3][R], im[3][R];
};

// Many threads read each value of x; the diagonal is read once, and it may be the output. What is read last is not kept.
struct ReadOften {
    template <class V> static __device__ __forceinline__ V read(const V* from) { return __ldg(from); }
};
struct ReadOnce {
    template <class V> static __device__ __forceinline__ V read(const V* from) { return __ldcs(from); }
};
struct ReadLast {
    template <class V> static __device__ __forceinline__ V read(const V* from) { return __ldlu(from); }
};

// [site][colour][rhs], complex numbers of Real.
template <class Real, class Lanes> struct WholeField {
    static constexpr int WIDTH = vector_width<Real>(Lanes::N, Lanes::CHUNK);
    static constexpr int PER_COLOR = Lanes::N / WIDTH, PER_CHUNK = Lanes::CHUNK / WIDTH;
    static constexpr unsigned PER_SITE = 3 * PER_COLOR;
    using Vector = ::Vector<Real, WIDTH>;

    Vector* vectors;

    __device__ __forceinline__ explicit WholeField(const void* values)
        : vectors(static_cast<Vector*>(const_cast<void*>(values))) {}

    template <class Access> __device__ __forceinline__ void load(ColorVectors<Real, Lanes::R>& v, unsigned site, int lane) const {
        const Vector* from = vectors + (site * PER_SITE + lane * PER_CHUNK);
        #pragma unroll
        for (int c = 0; c < 3; c++)
            #pragma unroll
            for (int i = 0; i < Lanes::R / WIDTH; i++)
                unpack(Access::read(from + offset(c, i)), &v.re[c][i * WIDTH], &v.im[c][i * WIDTH]);
    }

    __device__ __forceinline__ void store(const ColorVectors<Real, Lanes::R>& v, unsigned site, int lane) const {
        Vector* to = vectors + (site * PER_SITE + lane * PER_CHUNK);
        #pragma unroll
        for (int c = 0; c < 3; c++)
            #pragma unroll
            for (int i = 0; i < Lanes::R / WIDTH; i++) {
                Vector packed;
                pack(packed, &v.re[c][i * WIDTH], &v.im[c][i * WIDTH]);
                __stcs(to + offset(c, i), packed);
            }
    }

    // Vector i of colour c of a lane, counted from the lane's first.
    static __device__ constexpr int offset(int c, int i) {
        return c * PER_COLOR + i / PER_CHUNK * Lanes::COUNT * PER_CHUNK + i % PER_CHUNK;
    }
};

// v = a w + b v
template <class Real, int R>
__device__ __forceinline__ void combine(ColorVectors<Real, R>& v, Real b, Real a, const ColorVectors<Real, R>& w) {
    #pragma unroll
    for (int c = 0; c < 3; c++)
        #pragma unroll
        for (int r = 0; r < R; r++) {
            v.re[c][r] = a * w.re[c][r] + b * v.re[c][r];
            v.im[c][r] = a * w.im[c][r] + b * v.im[c][r];
        }
}

// v += factor w of one right-hand side
__device__ __forceinline__ void add(ColorVectors<float, 1>& v, float factor, const ColorVectors<float, 1>& w) {
    #pragma unroll
    for (int c = 0; c < 3; c++) v.re[c][0] += factor * w.re[c][0], v.im[c][0] += factor * w.im[c][0];
}

// Re conj(v) w of the site for each right-hand side; six products do not need double, the sum over sites does.
template <class Real, int R>
__device__ __forceinline__ void dots(double (&products)[R], const ColorVectors<Real, R>& v,
                                     const ColorVectors<Real, R>& w) {
    #pragma unroll
    for (int r = 0; r < R; r++) {
        Real sum = 0;
        #pragma unroll
        for (int c = 0; c < 3; c++) sum += v.re[c][r] * w.re[c][r] + v.im[c][r] * w.im[c][r];
        products[r] = sum;
    }
}

// A 3 x 3 matrix in memory, row by row.
template <class Real> struct Matrix {
    const Complex<Real>* elements;

    __device__ __forceinline__ Complex<Real> at(int i, int j) const { return elements[3 * i + j]; }
};

// sum += u v for each right-hand side
template <class Matrix, class Real, int R>
__device__ __forceinline__ void multiply_add(ColorVectors<Real, R>& sum, const Matrix& u,
                                             const ColorVectors<Real, R>& v) {
    #pragma unroll
    for (int i = 0; i < 3; i++)
        #pragma unroll
        for (int j = 0; j < 3; j++) {
            const Complex<Real> e = u.at(i, j);
            #pragma unroll
            for (int r = 0; r < R; r++) add_multiple(sum.re[i][r], sum.im[i][r], e.x, e.y, v.re[j][r], v.im[j][r]);
        }
}
