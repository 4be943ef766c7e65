// Products with the clover term's matrices: a site has two 6 x 6 matrices, one a chirality. A Hermitian one has 36
// reals: the 6 of the diagonal, then the 15 complex numbers below it by rows; those of twisted quarks have all 36
// complex numbers by rows.

#include "spinors.cuh"

constexpr int HERMITIAN_REALS = 36;

// Kinds of matrices, as in clover.py: the adjoint is that of what is stored.
constexpr int HERMITIAN = 0, GENERAL = 1, ADJOINT = 2;
template <int KIND> constexpr int MATRIX_REALS = KIND == HERMITIAN ? HERMITIAN_REALS : 72;

// v = C v, components numbered 3 * spin + colour.
template <class Real, int R> __device__ __forceinline__ void multiply(const Real* c, HalfSpinor<Real, R>& v) {
    const Complex<Real>* below = reinterpret_cast<const Complex<Real>*>(c + 6);
    Real re[6][R], im[6][R];
    #pragma unroll
    for (int i = 0; i < 6; i++)
        #pragma unroll
        for (int r = 0; r < R; r++) re[i][r] = c[i] * v.re[i / 3][i % 3][r], im[i][r] = c[i] * v.im[i / 3][i % 3][r];
    #pragma unroll
    for (int i = 1; i < 6; i++)
        #pragma unroll
        for (int j = 0; j < i; j++) {
            const Complex<Real> e = below[i * (i - 1) / 2 + j];
            #pragma unroll
            for (int r = 0; r < R; r++) {
                const Real vi = v.re[i / 3][i % 3][r], wi = v.im[i / 3][i % 3][r];
                const Real vj = v.re[j / 3][j % 3][r], wj = v.im[j / 3][j % 3][r];
                re[i][r] += e.x * vj, re[i][r] -= e.y * wj, im[i][r] += e.x * wj, im[i][r] += e.y * vj;
                re[j][r] += e.x * vi, re[j][r] += e.y * wi, im[j][r] += e.x * wi, im[j][r] -= e.y * vi;
            }
        }
    #pragma unroll
    for (int i = 0; i < 6; i++)
        #pragma unroll
        for (int r = 0; r < R; r++) v.re[i / 3][i % 3][r] = re[i][r], v.im[i / 3][i % 3][r] = im[i][r];
}

// v = C v for C of a kind.
template <int KIND, class Real, int R> __device__ __forceinline__ void multiply_by(const Real* c, HalfSpinor<Real, R>& v) {
    if constexpr (KIND == HERMITIAN) multiply(c, v);
    else {
        const Complex<Real>* elements = reinterpret_cast<const Complex<Real>*>(c);
        const HalfSpinor<Real, R> w = v;
        v = {};
        #pragma unroll
        for (int k = 0; k < 36; k++) {
            const int i = KIND == GENERAL ? k / 6 : k % 6, j = KIND == GENERAL ? k % 6 : k / 6;
            const Complex<Real> e = elements[k];
            const Real im = KIND == GENERAL ? e.y : -e.y;
            #pragma unroll
            for (int r = 0; r < R; r++)
                add_multiple(v.re[i / 3][i % 3][r], v.im[i / 3][i % 3][r], e.x, im, w.re[j / 3][j % 3][r],
                             w.im[j / 3][j % 3][r]);
        }
    }
}
