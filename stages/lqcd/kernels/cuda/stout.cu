// Stout links exp(A) U [matrix][3][3] in double precision, A the traceless anti-Hermitian part of C U^dag.
// exp(iQ) = f0 + f1 Q + f2 Q^2 by equations 15 to 34 of arXiv:hep-lat/0311018, as in stages/lqcd/kernels/cpu/stout.py.

#include "warp_matrices.cuh"

// The Hermitian Q of A = iQ, A the traceless anti-Hermitian part of m.
__device__ __forceinline__ Matrix<double> generator(const Matrix<double>& m) {
    Matrix<double> q;
    #pragma unroll
    for (int i = 0; i < 3; i++)
        #pragma unroll
        for (int j = 0; j < 3; j++) {
            q.re[i][j] = (m.im[i][j] + m.im[j][i]) / 2;
            q.im[i][j] = (m.re[j][i] - m.re[i][j]) / 2;
        }
    const double third = (q.re[0][0] + q.re[1][1] + q.re[2][2]) / 3;
    #pragma unroll
    for (int i = 0; i < 3; i++) q.re[i][i] -= third;
    return q;
}

// f0, f1, f2 of the invariants c0 = det Q and c1 = tr Q^2 / 2.
__device__ __forceinline__ void coefficients(double c0, double c1, double2 (&f)[3]) {
    if (c1 < 1e-30) {  // exp(A) = 1 to rounding
        f[0] = {1, 0}, f[1] = {0, 1}, f[2] = {-0.5, 0};
        return;
    }
    const double root = sqrt(c1 / 3);
    const double theta = acos(fmin(1.0, fabs(c0) / (2 * root * root * root)));
    const double u = root * cos(theta / 3), w = sqrt(c1) * sin(theta / 3), u2 = u * u, w2 = w * w;
    double sine, cosine, double_sine, double_cosine;
    sincos(u, &sine, &cosine);
    sincos(2 * u, &double_sine, &double_cosine);
    const double cos_w = cos(w), xi0 = w == 0 ? 1.0 : sin(w) / w, scale = 1 / (9 * u2 - w2);
    // exp(-iu) (a + ib) for the three brackets
    const auto rotated = [&](double a, double b) -> double2 { return {a * cosine + b * sine, b * cosine - a * sine}; };
    const double2 g0 = rotated(8 * u2 * cos_w, 2 * u * (3 * u2 + w2) * xi0);
    const double2 g1 = rotated(2 * u * cos_w, -(3 * u2 - w2) * xi0), g2 = rotated(cos_w, 3 * u * xi0);
    f[0] = {scale * ((u2 - w2) * double_cosine + g0.x), scale * ((u2 - w2) * double_sine + g0.y)};
    f[1] = {scale * (2 * u * double_cosine - g1.x), scale * (2 * u * double_sine - g1.y)};
    f[2] = {scale * (double_cosine - g2.x), scale * (double_sine - g2.y)};
    if (c0 < 0) f[0].y = -f[0].y, f[1].x = -f[1].x, f[2].y = -f[2].y;
}

__global__ void __launch_bounds__(64)
    smeared_links(double2* out, const double2* staples, const double2* links, unsigned total) {
    __shared__ __align__(16) double2 memory[2 * 2 * WARP_ELEMENTS];
    double2* tile = memory + threadIdx.x / WARP * (2 * WARP_ELEMENTS);
    const Run run = Run::of(total);
    if (run.count == 0) return;
    fetch<double>(tile, staples, run.number);
    fetch<double>(tile + WARP_ELEMENTS, links, run.number);
    commit_copies();
    arrived<0>();
    const Matrix<double> q = generator(mine<double>(tile) * dagger(mine<double>(tile + WARP_ELEMENTS)));
    const Matrix<double> square = q * q;
    double cube = 0;
    #pragma unroll
    for (int i = 0; i < 3; i++)
        #pragma unroll
        for (int j = 0; j < 3; j++) cube += square.re[i][j] * q.re[j][i] - square.im[i][j] * q.im[j][i];
    double2 f[3];
    coefficients(cube / 3, (square.re[0][0] + square.re[1][1] + square.re[2][2]) / 2, f);
    Matrix<double> exponential;
    #pragma unroll
    for (int i = 0; i < 3; i++)
        #pragma unroll
        for (int j = 0; j < 3; j++) {
            const double qr = q.re[i][j], qi = q.im[i][j], sr = square.re[i][j], si = square.im[i][j];
            exponential.re[i][j] = (i == j ? f[0].x : 0) + f[1].x * qr - f[1].y * qi + f[2].x * sr - f[2].y * si;
            exponential.im[i][j] = (i == j ? f[0].y : 0) + f[1].x * qi + f[1].y * qr + f[2].x * si + f[2].y * sr;
        }
    const Matrix<double> product = exponential * mine<double>(tile + WARP_ELEMENTS);
    double2* target = out + size_t(run.first) * 9;
    spread<double>(tile, product, run.count, [&](int element, double2 value) { target[element] = value; });
}
