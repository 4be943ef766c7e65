// Projections of matrices [matrix][3][3] in double precision: of links to SU(3), and to the polar factor in U(3).

#include "warp_matrices.cuh"

constexpr double PI = 3.141592653589793;

// The larger of two numbers; NaN if either is.
__device__ __forceinline__ double larger(double a, double b) { return b > a || b != b ? b : a; }

// The larger of a number and what lies at `most`, from several devices. Bits of numbers that are not negative, and of
// NaN, are in their order.
__device__ __forceinline__ void raise_to(unsigned long long* most, double value) {
    const auto bits = (unsigned long long)__double_as_longlong(value);
    if (bits <= *static_cast<volatile unsigned long long*>(most)) return;
#ifdef SPREAD
    atomicMax_system(most, bits);
#else
    atomicMax(most, bits);
#endif
}

// Gram-Schmidt on the rows; `most`, zero before, becomes the square of the largest change of an element.
__global__ void __launch_bounds__(64)
    special_unitary(double2* out, const double2* links, unsigned long long* most, unsigned total) {
    __shared__ __align__(16) double2 memory[2 * WARP_ELEMENTS];
    double2* tile = memory + threadIdx.x / WARP * WARP_ELEMENTS;
    const Run run = Run::of(total);
    if (run.count == 0) return;
    fetch<double>(tile, links, run.number);
    commit_copies();
    arrived<0>();
    const Matrix<double> link = mine<double>(tile), projected = in_su3(link);
    double change = 0;
    #pragma unroll
    for (int i = 0; i < 9; i++) {
        const double re = projected.re[i / 3][i % 3] - link.re[i / 3][i % 3];
        const double im = projected.im[i / 3][i % 3] - link.im[i / 3][i % 3];
        change = larger(change, re * re + im * im);
    }
    #pragma unroll
    for (int half = WARP / 2; half > 0; half /= 2) change = larger(change, __shfl_xor_sync(~0u, change, half));
    if (threadIdx.x % WARP == 0) raise_to(most, change);
    double2* target = out + size_t(run.first) * 9;
    spread<double>(tile, projected, run.count, [&](int element, double2 value) { target[element] = value; });
}

__device__ __forceinline__ Matrix<double> plus_identity(Matrix<double> m, double f) {
    #pragma unroll
    for (int i = 0; i < 3; i++) m.re[i][i] += f;
    return m;
}

// Eigenvalues of 1 + B, B Hermitian and traceless: 1 + 2 p cos(phi + 2 pi k / 3).
__device__ __forceinline__ void eigenvalues(const Matrix<double>& b, double (&values)[3]) {
    const double p = sqrt(square(b) / 6);
    const Matrix<double> b2 = b * b;
    double cubic = 0;
    #pragma unroll
    for (int i = 0; i < 3; i++)
        #pragma unroll
        for (int j = 0; j < 3; j++) cubic += b2.re[i][j] * b.re[j][i] - b2.im[i][j] * b.im[j][i];
    const double phi = acos(fmax(-1.0, fmin(1.0, cubic / (p > 0 ? 6 * p * p * p : 1)))) / 3;
    #pragma unroll
    for (int k = 0; k < 3; k++) values[k] = 1 + 2 * p * cos(phi + 2 * PI * k / 3);
}

// W = V Q^(-1/2) with Q = V^dag V by Cayley-Hamilton and one Newton step, formulas as in
// stages/lqcd/kernels/reference/smearing.py. Where W cannot be trusted, singular is 1 and out is V.
__global__ void __launch_bounds__(64, 4)
    unitary(double2* out, unsigned char* singular, const double2* matrices, double smallest_determinant,
            double largest_error, unsigned total) {
    __shared__ __align__(16) double2 memory[2 * WARP_ELEMENTS];
    double2* tile = memory + threadIdx.x / WARP * WARP_ELEMENTS;
    const Run run = Run::of(total);
    if (run.count == 0) return;
    fetch<double>(tile, matrices, run.number);
    commit_copies();
    arrived<0>();
    const Matrix<double> v = mine<double>(tile);
    const double scale = sqrt(square(v) / 3);
    const Matrix<double> unit = scaled(scale > 0 ? 1 / scale : 1.0, v), q = dagger(unit) * unit;
    double e[3];
    eigenvalues(plus_identity(q, -1), e);
    const double a = sqrt(fmax(e[0], smallest_determinant)), b = sqrt(fmax(e[1], smallest_determinant)),
                 c = sqrt(fmax(e[2], smallest_determinant));
    const double s = a + b + c, t = a * b + b * c + c * a, d = a * b * c, denominator = d * (s * t - d);
    const double f0 = (s * t * t - d * (s * s + t)) / denominator;
    const double f1 = (2 * s * t - d - s * s * s) / denominator, f2 = s / denominator;
    Matrix<double> root = scaled(f2, q * q);
    root += scaled(f1, q);
    Matrix<double> w = unit * plus_identity(root, f0);
    const Matrix<double> defect = plus_identity(scaled(-1.0, dagger(w) * w), 1);
    const bool lost = !(square(defect) < largest_error * largest_error) || e[0] * e[1] * e[2] < smallest_determinant;
    w += scaled(0.5, w * defect);
    if (int(threadIdx.x % WARP) < run.count) singular[run.number] = lost;
    double2* target = out + size_t(run.first) * 9;
    spread<double>(tile, lost ? v : w, run.count, [&](int element, double2 value) { target[element] = value; });
}

// W det(W)^(-1/3) in place, the cube root of the smallest phase.
__global__ void __launch_bounds__(64) without_phase(double2* matrices, unsigned total) {
    __shared__ __align__(16) double2 memory[2 * WARP_ELEMENTS];
    double2* tile = memory + threadIdx.x / WARP * WARP_ELEMENTS;
    const Run run = Run::of(total);
    if (run.count == 0) return;
    fetch<double>(tile, matrices, run.number);
    commit_copies();
    arrived<0>();
    Matrix<double> w = mine<double>(tile);
    double re = 0, im = 0;
    #pragma unroll
    for (int j = 0; j < 3; j++) {
        const int k = (j + 1) % 3, l = (j + 2) % 3;
        const double x = w.re[1][k] * w.re[2][l] - w.im[1][k] * w.im[2][l] - w.re[1][l] * w.re[2][k] + w.im[1][l] * w.im[2][k];
        const double y = w.re[1][k] * w.im[2][l] + w.im[1][k] * w.re[2][l] - w.re[1][l] * w.im[2][k] - w.im[1][l] * w.re[2][k];
        re += w.re[0][j] * x - w.im[0][j] * y, im += w.re[0][j] * y + w.im[0][j] * x;
    }
    double sine, cosine;
    sincos(-atan2(im, re) / 3, &sine, &cosine);
    #pragma unroll
    for (int i = 0; i < 9; i++) {
        const double x = w.re[i / 3][i % 3], y = w.im[i / 3][i % 3];
        w.re[i / 3][i % 3] = cosine * x - sine * y, w.im[i / 3][i % 3] = cosine * y + sine * x;
    }
    double2* target = matrices + size_t(run.first) * 9;
    __syncwarp();
    spread<double>(tile, w, run.count, [&](int element, double2 value) { target[element] = value; });
}
