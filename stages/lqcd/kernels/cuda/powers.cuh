// Paired powers rho_i(A) [p | r]: fields [power][row][2 RHS], of which right-hand side n has the columns n and RHS + n.
// Its vectors are numbered p_0 ... p_STEPS, r_0 ... r_{STEPS - 1}.

template <int STEPS_, int RHS_> struct Powers {
    static constexpr int STEPS = STEPS_, RHS = RHS_, COUNT = 2 * STEPS + 1, PAIRS = COUNT * (COUNT + 1) / 2;

    // Where vector `v` of right-hand side `n` begins, in complex numbers; numbers are 2 RHS apart.
    static __device__ __forceinline__ long long start(int v, int n, long long rows) {
        return v <= STEPS ? v * rows * (2 * RHS) + n : (v - STEPS - 1) * rows * (2 * RHS) + RHS + n;
    }

    // Number of the pair j <= k.
    static __device__ __forceinline__ int pair(int j, int k) { return j * COUNT - j * (j - 1) / 2 + k - j; }
};

// Numbers of twice double precision, high + low with |low| <= ulp(high) / 2, by error-free transformations (T. J. Dekker,
// Numer. Math. 18 (1971) 224; Y. Hida, X. S. Li, D. H. Bailey, ARITH-15 (2001) 155). The intrinsics keep the compiler
// from contracting a product and a sum.

struct DoubleDouble {
    double high, low;
};

// a + b without error.
__device__ __forceinline__ DoubleDouble two_sum(double a, double b) {
    const double s = __dadd_rn(a, b), t = __dsub_rn(s, a);
    return {s, __dadd_rn(__dsub_rn(a, __dsub_rn(s, t)), __dsub_rn(b, t))};
}

// The same where |a| >= |b|.
__device__ __forceinline__ DoubleDouble quick_two_sum(double a, double b) {
    const double s = __dadd_rn(a, b);
    return {s, __dsub_rn(b, __dsub_rn(s, a))};
}

// a b without error.
__device__ __forceinline__ DoubleDouble two_product(double a, double b) {
    const double p = __dmul_rn(a, b);
    return {p, __fma_rn(a, b, -p)};
}

// Arithmetic of small matrices, written once for double and for twice its precision.
__device__ __forceinline__ double sum(double a, double b) { return a + b; }

// As IEEE arithmetic would round it, 20 operations: the error is 2^-105 of |a + b|.
__device__ __forceinline__ DoubleDouble sum(DoubleDouble a, DoubleDouble b) {
    const DoubleDouble s = two_sum(a.high, b.high), t = two_sum(a.low, b.low);
    const DoubleDouble u = quick_two_sum(s.high, __dadd_rn(s.low, t.high));
    return quick_two_sum(u.high, __dadd_rn(u.low, t.low));
}

__device__ __forceinline__ double product(double a, double b) { return a * b; }
__device__ __forceinline__ DoubleDouble product(DoubleDouble a, DoubleDouble b) {
    const DoubleDouble p = two_product(a.high, b.high);
    return quick_two_sum(p.high, p.low + (a.high * b.low + a.low * b.high));
}

__device__ __forceinline__ double negative(double a) { return -a; }
__device__ __forceinline__ DoubleDouble negative(DoubleDouble a) { return {-a.high, -a.low}; }

__device__ __forceinline__ double quotient(double a, double b) { return a / b; }
__device__ __forceinline__ DoubleDouble quotient(DoubleDouble a, DoubleDouble b) {
    const double q = a.high / b.high;
    const DoubleDouble rest = sum(a, negative(product({q, 0}, b)));
    return quick_two_sum(q, rest.high / b.high);
}

__device__ __forceinline__ double high_of(double a) { return a; }
__device__ __forceinline__ double high_of(DoubleDouble a) { return a.high; }

__device__ __forceinline__ double from_lane(double a, int distance) { return __shfl_xor_sync(~0u, a, distance); }
__device__ __forceinline__ DoubleDouble from_lane(DoubleDouble a, int distance) {
    return {from_lane(a.high, distance), from_lane(a.low, distance)};
}

template <class Number> __device__ __forceinline__ Number number(double high, double low);
template <> __device__ __forceinline__ double number<double>(double high, double low) { return high + low; }
template <> __device__ __forceinline__ DoubleDouble number<DoubleDouble>(double high, double low) { return {high, low}; }

template <class Number> __device__ __forceinline__ Number warp_sum(Number a) {
    for (int distance = 16; distance > 0; distance /= 2) a = sum(a, from_lane(a, distance));
    return a;
}
