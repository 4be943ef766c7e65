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
