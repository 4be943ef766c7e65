// 3x3 complex matrices in registers.

#include "complex.cuh"

template <class Real> struct Matrix {
    Real re[3][3], im[3][3];
};

template <class Real> __device__ __forceinline__ Matrix<Real> load(const Complex<Real>* elements) {
    Matrix<Real> m;
    #pragma unroll
    for (int i = 0; i < 9; i++) unpack(elements[i], &m.re[i / 3][i % 3], &m.im[i / 3][i % 3]);
    return m;
}

template <class Real> __device__ __forceinline__ void store(Complex<Real>* elements, const Matrix<Real>& m) {
    #pragma unroll
    for (int i = 0; i < 9; i++) elements[i] = {m.re[i / 3][i % 3], m.im[i / 3][i % 3]};
}

template <class Real> __device__ __forceinline__ Matrix<Real> dagger(const Matrix<Real>& m) {
    Matrix<Real> d;
    #pragma unroll
    for (int i = 0; i < 3; i++)
        #pragma unroll
        for (int j = 0; j < 3; j++) d.re[i][j] = m.re[j][i], d.im[i][j] = -m.im[j][i];
    return d;
}

template <class Real>
__device__ __forceinline__ Matrix<Real> operator*(const Matrix<Real>& a, const Matrix<Real>& b) {
    Matrix<Real> product = {};
    #pragma unroll
    for (int i = 0; i < 3; i++)
        #pragma unroll
        for (int j = 0; j < 3; j++)
            #pragma unroll
            for (int k = 0; k < 3; k++) {
                product.re[i][j] += a.re[i][k] * b.re[k][j] - a.im[i][k] * b.im[k][j];
                product.im[i][j] += a.re[i][k] * b.im[k][j] + a.im[i][k] * b.re[k][j];
            }
    return product;
}

template <class Real> __device__ __forceinline__ void operator+=(Matrix<Real>& a, const Matrix<Real>& b) {
    #pragma unroll
    for (int i = 0; i < 9; i++) a.re[i / 3][i % 3] += b.re[i / 3][i % 3], a.im[i / 3][i % 3] += b.im[i / 3][i % 3];
}

template <class Real> __device__ __forceinline__ Matrix<Real> scaled(Real factor, const Matrix<Real>& m) {
    Matrix<Real> s;
    #pragma unroll
    for (int i = 0; i < 9; i++) s.re[i / 3][i % 3] = factor * m.re[i / 3][i % 3], s.im[i / 3][i % 3] = factor * m.im[i / 3][i % 3];
    return s;
}

// sum_ij |m_ij|^2
template <class Real> __device__ __forceinline__ Real square(const Matrix<Real>& m) {
    Real sum = 0;
    #pragma unroll
    for (int i = 0; i < 9; i++) sum += m.re[i / 3][i % 3] * m.re[i / 3][i % 3] + m.im[i / 3][i % 3] * m.im[i / 3][i % 3];
    return sum;
}

// Divide a row by its length.
template <class Real> __device__ __forceinline__ void normalise(Matrix<Real>& m, int row) {
    Real sum = 0;
    #pragma unroll
    for (int j = 0; j < 3; j++) sum += m.re[row][j] * m.re[row][j] + m.im[row][j] * m.im[row][j];
    const Real scale = 1 / sqrt(sum);
    #pragma unroll
    for (int j = 0; j < 3; j++) m.re[row][j] *= scale, m.im[row][j] *= scale;
}

// Element j of row 0 x row 1.
template <class Real> __device__ __forceinline__ Complex<Real> cross(const Matrix<Real>& m, int j) {
    const int k = (j + 1) % 3, l = (j + 2) % 3;
    return {m.re[0][k] * m.re[1][l] - m.im[0][k] * m.im[1][l] - m.re[0][l] * m.re[1][k] + m.im[0][l] * m.im[1][k],
            m.re[0][k] * m.im[1][l] + m.im[0][k] * m.re[1][l] - m.re[0][l] * m.im[1][k] - m.im[0][l] * m.re[1][k]};
}

// The matrix of SU(3) with the first two rows of m, made orthonormal; the third row is (row 1 x row 2)^*.
template <class Real> __device__ __forceinline__ Matrix<Real> in_su3(Matrix<Real> m) {
    normalise(m, 0);
    Real re = 0, im = 0;
    #pragma unroll
    for (int j = 0; j < 3; j++) {
        re += m.re[0][j] * m.re[1][j] + m.im[0][j] * m.im[1][j];
        im += m.re[0][j] * m.im[1][j] - m.im[0][j] * m.re[1][j];
    }
    #pragma unroll
    for (int j = 0; j < 3; j++) {
        m.re[1][j] -= re * m.re[0][j] - im * m.im[0][j];
        m.im[1][j] -= re * m.im[0][j] + im * m.re[0][j];
    }
    normalise(m, 1);
    #pragma unroll
    for (int j = 0; j < 3; j++) {
        const Complex<Real> third = cross(m, j);
        m.re[2][j] = third.x, m.im[2][j] = -third.y;
    }
    return m;
}
