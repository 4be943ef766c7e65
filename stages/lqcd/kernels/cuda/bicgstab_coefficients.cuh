// Coefficients of BiCGstab, and what its three sums give of them (`stages.lqcd.solvers.bicgstab`), for the right-hand
// side n of a thread.

// The rows of `BiCGstabCoefficients.numbers` and `.reals`.
template <int N> struct BiCGstabCoefficients {
    double2* numbers;
    double* reals;

    __device__ __forceinline__ double2& open(int n) const { return numbers[n]; }
    __device__ __forceinline__ double2& back(int n) const { return numbers[N + n]; }
    __device__ __forceinline__ double2& kept(int n) const { return numbers[2 * N + n]; }
    __device__ __forceinline__ double2& alpha(int n) const { return numbers[3 * N + n]; }
    __device__ __forceinline__ double2& omega(int n) const { return numbers[4 * N + n]; }
    __device__ __forceinline__ double2& minus_alpha(int n) const { return numbers[5 * N + n]; }
    __device__ __forceinline__ double2& rho(int n) const { return numbers[6 * N + n]; }
    __device__ __forceinline__ double2& beta(int n) const { return numbers[7 * N + n]; }
    __device__ __forceinline__ double2& sv(int n) const { return numbers[8 * N + n]; }

    __device__ __forceinline__ double& r2(int n) const { return reals[n]; }
    __device__ __forceinline__ double& angle2(int n) const { return reals[N + n]; }
    __device__ __forceinline__ double target2(int n) const { return reals[2 * N + n]; }
    __device__ __forceinline__ double shadow2(int n) const { return reals[3 * N + n]; }

    __device__ __forceinline__ bool active(int n) const { return r2(n) > target2(n); }
};

__device__ __forceinline__ bool is_zero(double2 a) { return a.x == 0 && a.y == 0; }
__device__ __forceinline__ double2 minus(double2 a) { return {-a.x, -a.y}; }
__device__ __forceinline__ double2 product(double2 a, double2 b) {
    return {a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x};
}
__device__ __forceinline__ double2 difference(double2 a, double2 b) {
    return {__dsub_rn(a.x, b.x), __dsub_rn(a.y, b.y)};
}

// a / b where that is asked for, zero elsewhere; scaled, so that no square underflows.
__device__ __forceinline__ double2 quotient(double2 a, double2 b, bool where) {
    if (!where) return {0, 0};
    const double scale = 1 / (abs(b.x) + abs(b.y));
    const double ar = a.x * scale, ai = a.y * scale, br = b.x * scale, bi = b.y * scale;
    const double inverse = 1 / (br * br + bi * bi);
    return {(ar * br + ai * bi) * inverse, (ai * br - ar * bi) * inverse};
}

// alpha = rho / s^H v.
template <int N> __device__ __forceinline__ void give_alpha(const BiCGstabCoefficients<N>& c, int n, double2 sv) {
    c.sv(n) = sv;
    c.alpha(n) = quotient(c.rho(n), sv, c.active(n) && !is_zero(sv));
    c.minus_alpha(n) = minus(c.alpha(n));
}

// omega = t^H r / |t|^2, rho = (rho - alpha s^H v) - omega s^H t, beta = (rho / rho before) (alpha / omega).
template <int N>
__device__ __forceinline__ void give_omega(const BiCGstabCoefficients<N>& c, int n, double t2, double2 st, double2 tr) {
    const double2 omega = quotient(tr, {t2, 0}, c.active(n) && t2 > 0);
    const double2 left = difference(c.rho(n), product(c.alpha(n), c.sv(n)));
    const double2 rho = difference(left, product(omega, st)), before = product(c.rho(n), omega);
    c.omega(n) = omega;
    c.beta(n) = quotient(product(rho, c.alpha(n)), before, c.active(n) && !is_zero(before));
    c.rho(n) = rho;
}

// |r|^2, how far rho is from rounding, and the coefficients of the next direction.
template <int N> __device__ __forceinline__ void give_direction(const BiCGstabCoefficients<N>& c, int n, double r2) {
    const double size = c.shadow2(n) * r2, distance = hypot(c.rho(n).x, c.rho(n).y);
    c.r2(n) = r2;
    c.angle2(n) = !is_zero(c.beta(n)) && size > 0 ? distance * distance / size : 0;
    const bool active = c.active(n);
    c.open(n) = {double(active), 0};
    c.back(n) = active ? product(minus(c.omega(n)), c.beta(n)) : double2{0, 0};
    c.kept(n) = active ? c.beta(n) : double2{1, 0};
}
