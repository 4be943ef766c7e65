// Products with the clover term's matrices: a site has two Hermitian 6 x 6 matrices, one a chirality, each in 36
// reals: the 6 of the diagonal, then the 15 complex numbers below it by rows.

#include "spinors.cuh"

constexpr int HERMITIAN_REALS = 36;

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
