// One pass over paired powers: y += Y x, and from the coordinates of a step r, p, the direction before it and A times
// that. Coefficients are real, rounded to working precision and kept in shared memory.

#include "complex.cuh"
#include "rows.cuh"
#include "powers.cuh"

// xs, rs, ps: [steps + 1][RHS][COUNT]; report: as coordinates.cu writes it; of the steps that a right-hand side has taken
// at most `step` count. One that has taken none keeps its last direction, and its r and p, bit by bit; of the others the
// first block sets `restarted` to zero.
// Left to itself the compiler spills 16 bytes for an A100 where one step in double is taken.
template <class Real, int RHS, int STEPS, int GROUPS>
__global__ void __launch_bounds__(Columns<Real, RHS, GROUPS>::THREADS, STEPS == 1 ? 512 / Columns<Real, RHS, GROUPS>::THREADS : 0)
    powers_update(Vector<Real, vector_width<Real>(RHS, RHS)>* __restrict__ y,
                  Vector<Real, vector_width<Real>(RHS, RHS)>* powers,
                  Vector<Real, vector_width<Real>(RHS, RHS)>* __restrict__ last,
                  Vector<Real, vector_width<Real>(RHS, RHS)>* __restrict__ image, const double* __restrict__ xs,
                  const double* __restrict__ rs, const double* __restrict__ ps, const double* __restrict__ change,
                  const double* __restrict__ report, double* __restrict__ restarted, long long rows, int step) {
    using Columns = Columns<Real, RHS, GROUPS>;
    using Powers = Powers<STEPS, RHS>;
    constexpr int width = Columns::WIDTH, COUNT = Powers::COUNT;
    enum { X, R, P, LAST, IMAGE, RESULTS };
    extern __shared__ __align__(16) unsigned char shared[];
    auto factors = reinterpret_cast<Real(*)[RESULTS][RHS]>(shared);
    const double* taken = report + (2 * STEPS + 2) * RHS;
    for (int i = threadIdx.x; i < COUNT * RHS; i += Columns::THREADS) {
        const int k = i / RHS, n = i % RHS, at = min(step, int(taken[n]));
        const int now = (at * RHS + n) * COUNT, before = (max(at - 1, 0) * RHS + n) * COUNT;
        factors[k][X][n] = Real(xs[now + k]), factors[k][R][n] = Real(rs[now + k]), factors[k][P][n] = Real(ps[now + k]);
        factors[k][LAST][n] = Real(ps[before + k]);
        double total = 0;
        for (int j = max(0, k - 1); j <= min(COUNT - 1, k + 1); j++) total += change[k * COUNT + j] * ps[before + j];
        factors[k][IMAGE][n] = Real(total);
    }
    if (blockIdx.x == 0 && first_row() == 0)
        for (int n = threadIdx.x; n < RHS; n += Columns::THREADS)
            if (min(step, int(taken[n])) > 0) restarted[n] = 0;
    __syncthreads();
    bool moves[width];
    bool any = false;
    #pragma unroll
    for (int w = 0; w < width; w++) any |= moves[w] = min(step, int(taken[Columns::first_rhs() + w])) > 0;
    if (!any) return;
    Columns::for_one(rows, [&](long long i) {
        const long long row = i / Columns::COUNT, column = i % Columns::COUNT, field = rows * (2 * Columns::COUNT);
        const long long of_p = row * (2 * Columns::COUNT) + column, of_r = of_p + Columns::COUNT;
        Real re[RESULTS][width] = {}, im[RESULTS][width] = {};
        #pragma unroll
        for (int k = 0; k < COUNT; k++) {
            Real vr[width], vi[width];
            unpack(powers[k <= STEPS ? k * field + of_p : (k - STEPS - 1) * field + of_r], vr, vi);
            #pragma unroll
            for (int m = 0; m < RESULTS; m++)
                #pragma unroll
                for (int w = 0; w < width; w++) {
                    const Real factor = factors[k][m][Columns::first_rhs() + w];
                    re[m][w] += factor * vr[w], im[m][w] += factor * vi[w];
                }
        }
        const auto put = [&](Vector<Real, width>& to, int m, bool add) {
            Real old[2][width];
            unpack(to, old[0], old[1]);
            #pragma unroll
            for (int w = 0; w < width; w++) {
                old[0][w] = moves[w] ? re[m][w] + (add ? old[0][w] : 0) : old[0][w];
                old[1][w] = moves[w] ? im[m][w] + (add ? old[1][w] : 0) : old[1][w];
            }
            pack(to, old[0], old[1]);
        };
        put(y[i], X, true);
        put(powers[of_p], P, false);
        put(powers[of_r], R, false);
        put(last[i], LAST, false);
        put(image[i], IMAGE, false);
    });
}
