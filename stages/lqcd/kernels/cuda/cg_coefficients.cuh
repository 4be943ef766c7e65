// The rows of `CGCoefficients.numbers`: coefficients of each right-hand side, which are computed where they are used and
// stay on the device.
template <int N> struct Coefficients {
    static constexpr int PITCH = N + N % 2;
    double* numbers;

    __device__ __forceinline__ double& r2(int n) const { return numbers[n]; }
    __device__ __forceinline__ double& pap(int n) const { return numbers[PITCH + n]; }
    __device__ __forceinline__ double& target2(int n) const { return numbers[2 * PITCH + n]; }
    __device__ __forceinline__ double& gamma(int n) const { return numbers[3 * PITCH + n]; }
    __device__ __forceinline__ double& alpha(int n) const { return numbers[4 * PITCH + n]; }
    __device__ __forceinline__ double& beta(int n) const { return numbers[5 * PITCH + n]; }

    __device__ __forceinline__ bool open(int n) const { return r2(n) > target2(n); }
    __device__ __forceinline__ bool moves(int n) const { return open(n) && pap(n) > 0; }
    __device__ __forceinline__ double step(int n) const { return moves(n) ? gamma(n) / pap(n) : 0; }

    // The coefficients of the next step, with the new |r|^2; by one thread, when all others have read.
    __device__ __forceinline__ void finish(int n, double norm2) const {
        const double now = step(n), ratio = moves(n) ? norm2 / r2(n) : 0;
        alpha(n) = now;
        beta(n) = ratio;
        r2(n) = gamma(n) = norm2;
    }
};
