// Complex numbers as they lie in memory, and the vectors of them that one instruction moves.
// Arithmetic is written on real and imaginary parts: a complex class hides the contraction to four FMAs.

template <class Real> struct ComplexOf;
template <> struct ComplexOf<float> { using type = float2; };
template <> struct ComplexOf<double> { using type = double2; };
template <class Real> using Complex = typename ComplexOf<Real>::type;

template <class Real, int WIDTH> struct VectorOf;
template <> struct VectorOf<float, 1> { using type = float2; };
template <> struct VectorOf<float, 2> { using type = float4; };
template <> struct VectorOf<double, 1> { using type = double2; };
template <class Real, int WIDTH> using Vector = typename VectorOf<Real, WIDTH>::type;

// Complex numbers per 16-byte vector if every row of N and every group of R consecutive ones holds whole
// vectors, otherwise one.
template <class Real> __device__ constexpr int vector_width(int n, int r) {
    constexpr int whole = 16 / sizeof(Complex<Real>);
    return n % whole == 0 && r % whole == 0 ? whole : 1;
}

__device__ constexpr int ceil_div(int a, int b) { return (a + b - 1) / b; }

__device__ __forceinline__ void unpack(float2 v, float* re, float* im) { re[0] = v.x, im[0] = v.y; }
__device__ __forceinline__ void unpack(double2 v, double* re, double* im) { re[0] = v.x, im[0] = v.y; }
__device__ __forceinline__ void unpack(float4 v, float* re, float* im) {
    re[0] = v.x, im[0] = v.y, re[1] = v.z, im[1] = v.w;
}

__device__ __forceinline__ void pack(float2& v, const float* re, const float* im) { v = {re[0], im[0]}; }
__device__ __forceinline__ void pack(double2& v, const double* re, const double* im) { v = {re[0], im[0]}; }
__device__ __forceinline__ void pack(float4& v, const float* re, const float* im) {
    v = {re[0], im[0], re[1], im[1]};
}

// y += a x; written out in bicgstab_residual, whose sum of squares the compiler would round otherwise.
template <class Real>
__device__ __forceinline__ void add_multiple(Real& yr, Real& yi, Real ar, Real ai, Real xr, Real xi) {
    yr += ar * xr;
    yr -= ai * xi;
    yi += ar * xi;
    yi += ai * xr;
}

// y += conj(a) x
template <class Real>
__device__ __forceinline__ void add_conjugate(Real& yr, Real& yi, Real ar, Real ai, Real xr, Real xi) {
    yr += ar * xr;
    yr += ai * xi;
    yi += ar * xi;
    yi -= ai * xr;
}

// Add conj(x) y to (sum[0], sum[1]) in double.
template <class Real> __device__ __forceinline__ void add_dot(double* sum, Real xr, Real xi, Real yr, Real yi) {
    sum[0] += double(xr) * yr + double(xi) * yi;
    sum[1] += double(xr) * yi - double(xi) * yr;
}
