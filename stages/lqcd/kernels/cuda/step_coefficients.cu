// The small algebra of a block CGrQ iteration in one block of threads, complex doubles throughout: from
// grams = {P^H A P, (A P)^H A P, Q^H Q} [3][N][N] and C [N][NX] to the coefficients of `block_step.cu`, the new C in
// place of the old, and the summary {1, least of what remains, norms of the new C's columns}. `remains` is the product
// of the diagonals of S; rows of C that no column has more than its target in do not count. Where it is not ordinary,
// summary[0] = 0 and nothing else is written. Without a workspace of 5 N^2 numbers, shared memory is used. The same
// arithmetic as in `reference/block_cg.py`, where it is explained.

#include "block_sum.cuh"

__device__ __forceinline__ double2 operator+(double2 a, double2 b) { return {a.x + b.x, a.y + b.y}; }
__device__ __forceinline__ double2 operator-(double2 a, double2 b) { return {a.x - b.x, a.y - b.y}; }
__device__ __forceinline__ double2 operator*(double a, double2 b) { return {a * b.x, a * b.y}; }
__device__ __forceinline__ double2 operator*(double2 a, double2 b) {
    return {a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x};
}
__device__ __forceinline__ double2 conj(double2 a) { return {a.x, -a.y}; }
__device__ __forceinline__ double norm2(double2 a) { return a.x * a.x + a.y * a.y; }

template <int N, int THREADS> struct SmallAlgebra {
    double* scratch;  // THREADS / 2 doubles of shared memory

    // body(i, j) for every element of a matrix of N rows and `columns` columns.
    template <class Body> static __device__ __forceinline__ void each(int columns, Body body) {
        for (int e = threadIdx.x; e < N * columns; e += THREADS) body(e / columns, e % columns);
        __syncthreads();
    }

    template <class Left, class Right>
    static __device__ __forceinline__ double2 dot(int first, int last, Left left, Right right) {
        double2 sum = {0, 0};
        #pragma unroll 4
        for (int k = first; k < last; k++) sum = sum + left(k) * right(k);
        return sum;
    }

    // Sum over the threads, the same in all of them.
    __device__ double total(double value) const {
        double values[1] = {value};
        sum_over_groups<1, THREADS>(values, scratch);
        if (threadIdx.x == 0) scratch[0] = values[0];
        __syncthreads();
        value = scratch[0];
        __syncthreads();
        return value;
    }

    // Upper triangular s and t = s^-1 with s^H s = a; destroys a and `inverse`. Returns the condition of a scaled to
    // a unit diagonal (Frobenius), or -1 if a is not positive definite.
    __device__ double cholesky(double2* a, double2* inverse, double2* s, double2* t, double* sizes) const {
        bool positive = true;
        for (int i = threadIdx.x; i < N; i += THREADS) {
            sizes[i] = sqrt(a[i * N + i].x);
            positive = sizes[i] > 0;
        }
        if (!__syncthreads_and(positive)) return -1;
        each(N, [&](int i, int j) {
            a[i * N + j] = 1 / (sizes[i] * sizes[j]) * a[i * N + j];
            inverse[i * N + j] = {i == j ? 1. : 0., 0};
        });
        for (int k = 0; k < N; k++) {  // rows of both become those of L and L^-1 times the root of the pivot
            const double pivot = a[k * N + k].x;
            if (!(pivot > 0)) return -1;
            for (int e = threadIdx.x; e < (N - k - 1) * N; e += THREADS) {
                const int i = k + 1 + e / N, j = e % N;
                const double2 factor = 1 / pivot * a[i * N + k];
                if (j <= k) inverse[i * N + j] = inverse[i * N + j] - factor * inverse[k * N + j];
                else if (j <= i) a[i * N + j] = a[i * N + j] - factor * conj(a[j * N + k]);
            }
            __syncthreads();
        }
        double of_s = 0, of_t = 0;
        each(N, [&](int i, int j) {
            const bool upper = i <= j;
            const double root = rsqrt(a[(upper ? i : j) * (N + 1)].x), other = rsqrt(a[j * (N + 1)].x);
            const double2 lower = upper ? root * conj(a[j * N + i]) : double2{0, 0};
            const double2 back = upper ? other * conj(inverse[j * N + i]) : double2{0, 0};
            of_s += norm2(lower), of_t += norm2(back);
            s[i * N + j] = sizes[j] * lower;
            t[i * N + j] = 1 / sizes[i] * back;
        });
        return total(of_s) * total(of_t);
    }
};

template <int N, int NX, int THREADS>
__global__ void __launch_bounds__(THREADS)
    step_coefficients(const double2* grams, double2* c, double2* for_x, double2* for_q, double2* for_ap,
                      double2* for_p, double2* c_new, const double* target, double* remains, double* summary,
                      double2* workspace, int rank, double unit, double drift, double condition_limit) {
    extern __shared__ __align__(16) unsigned char shared[];
    double *scratch = reinterpret_cast<double*>(shared), *sizes = scratch + THREADS / 2;
    double2* a = workspace ? workspace : reinterpret_cast<double2*>(sizes + N + N % 2);
    double2 *b = a + N * N, *alpha = b + N * N, *s = alpha + N * N, *t = s + N * N;
    const SmallAlgebra<N, THREADS> algebra = {scratch};
    const double2 *pap = grams, *ap2 = pap + N * N, *q2 = ap2 + N * N;
    const auto padded = [&](const double2* matrix, int i, int j, double padding) {
        return matrix[i * N + j] + double2{i == j && i >= rank ? padding : 0., 0};
    };
    if (threadIdx.x == 0) summary[0] = 0;

    bool ordinary = true;
    algebra.each(N, [&](int i, int j) {
        const double2 off = padded(q2, i, j, 1) - double2{i == j ? 1. : 0., 0};
        ordinary = ordinary && norm2(off) < drift * drift;
        a[i * N + j] = padded(pap, i, j, 1);
    });
    if (!__syncthreads_and(ordinary)) return;
    double condition = algebra.cholesky(a, b, s, t, sizes);
    if (!(condition >= 0 && condition * unit < condition_limit)) return;

    // alpha = t t^H Q^H Q
    algebra.each(N, [&](int i, int j) {
        a[i * N + j] = algebra.dot(0, i + 1, [&](int k) { return conj(t[k * N + i]); },
                                   [&](int k) { return padded(q2, k, j, 1); });
    });
    algebra.each(N, [&](int i, int j) {
        alpha[i * N + j] =
            algebra.dot(i, N, [&](int k) { return t[i * N + k]; }, [&](int k) { return a[k * N + j]; });
    });
    // (Q S)^H Q S = alpha^H (A P)^H A P alpha - Q^H Q
    algebra.each(N, [&](int i, int j) {
        b[i * N + j] = algebra.dot(0, N, [&](int k) { return padded(ap2, i, k, 2); },
                                   [&](int k) { return alpha[k * N + j]; });
    });
    double advance = 0;
    algebra.each(N, [&](int i, int j) {
        const double2 value = algebra.dot(0, N, [&](int k) { return conj(alpha[k * N + i]); },
                                          [&](int k) { return b[k * N + j]; });
        if (i == j) advance += value.x;
        a[i * N + j] = value - padded(q2, i, j, 1);
    });
    condition = algebra.cholesky(a, b, s, t, sizes);
    double inverse2 = 0;
    algebra.each(N, [&](int i, int j) { inverse2 += norm2(t[i * N + j]); });
    const double amplification = algebra.total(advance) / N * algebra.total(inverse2);
    if (!(condition >= 0 && amplification * unit < drift)) return;

    algebra.each(NX, [&](int i, int j) {
        const auto column = [&](int k) { return c[k * NX + j]; };
        for_x[i * NX + j] = algebra.dot(0, N, [&](int k) { return alpha[i * N + k]; }, column);
        c_new[i * NX + j] = algebra.dot(i, N, [&](int k) { return s[i * N + k]; }, column);
    });
    algebra.each(N, [&](int i, int j) {
        for_q[i * N + j] = t[i * N + j];
        for_ap[i * N + j] =
            -1. * algebra.dot(0, j + 1, [&](int k) { return alpha[i * N + k]; }, [&](int k) { return t[k * N + j]; });
        const double2 product = algebra.dot(j, N, [&](int k) { return padded(q2, i, k, 1); },
                                            [&](int k) { return conj(s[j * N + k]); });
        for_p[i * N + j] = 2 * conj(s[j * N + i]) - product;
    });
    // Both ends of the block of threads at once; what they read does not wait for what they write.
    algebra.each(NX, [&](int i, int j) { c[i * NX + j] = c_new[i * NX + j]; });
    for (int j = threadIdx.x; j < NX; j += THREADS) {
        double sum = 0;
        #pragma unroll 8
        for (int i = 0; i < N; i++) sum += norm2(c_new[i * NX + j]);
        summary[2 + j] = sqrt(sum);
    }
    for (int i = THREADS - 1 - threadIdx.x; i < N; i += THREADS) {
        bool large = false;
        #pragma unroll 8
        for (int j = 0; j < NX; j++) large |= norm2(c_new[i * NX + j]) > target[j] * target[j];
        remains[i] *= s[i * N + i].x;
        sizes[i] = large ? remains[i] : 1;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        double least = 1;
        for (int i = 0; i < N; i++) least = min(least, sizes[i]);
        summary[0] = 1, summary[1] = least;
    }
}
