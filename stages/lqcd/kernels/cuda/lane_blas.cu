// Sums and updates over a basis xs[k][row][N] of fields like y[row][N], each right-hand side with coefficients of its
// own, complex doubles [k][N].

#include "grid_sum.cuh"
#include "rows.cuh"

// conj(xs[k]) y of each right-hand side in double. blockIdx.y counts groups of FIELDS fields, the last of which may
// have fewer: y is read once for each group.
template <class Real, int N, int FIELDS, int GROUPS>
__global__ void __launch_bounds__(Columns<Real, N, GROUPS>::THREADS, 1024 / Columns<Real, N, GROUPS>::THREADS)
    lane_dots(const RowVector<Real, N>* __restrict__ xs, const RowVector<Real, N>* __restrict__ y, double* sums,
              double* partials, unsigned* finished, long long rows, int count) {
    using Columns = Columns<Real, N, GROUPS>;
    constexpr int width = Columns::WIDTH;
    __shared__ double scratch[2 * width * FIELDS * Columns::THREADS / 2 + 1];
    const int first = blockIdx.y * FIELDS, present = min(FIELDS, count - first);
    const long long field = rows * Columns::COUNT;
    const auto* start = xs + first * field;
    double sum[2 * width * FIELDS] = {};
    Columns::for_each<1>(rows, [&](long long i) {
        Real yr[width], yi[width];
        unpack(y[i], yr, yi);
        #pragma unroll
        for (int f = 0; f < FIELDS; f++)
            if (f < present) {
                Real xr[width], xi[width];
                unpack(start[f * field + i], xr, xi);
                #pragma unroll
                for (int w = 0; w < width; w++) add_dot(sum + 2 * (f * width + w), xr[w], xi[w], yr[w], yi[w]);
            }
    });
    if (!sum_over_grid<Columns::COUNT, GROUPS>(sum, scratch, {partials, finished})) return;
    for (int f = 0; f < present; f++)
        for (int v = 0; v < 2 * width; v++)
            sums[2 * ((first + f) * N + Columns::first_rhs()) + v] = sum[2 * width * f + v];
}

// y = scale y + sum_k a[k] xs[k], scale being one where its pointer is null; a is rounded to working precision and kept
// in shared memory.
template <class Real, int N, int GROUPS>
__global__ void __launch_bounds__(Columns<Real, N, GROUPS>::THREADS)
    lane_update(RowVector<Real, N>* __restrict__ y, const RowVector<Real, N>* __restrict__ xs,
                const double2* __restrict__ a, const double2* __restrict__ scale, long long rows, int count) {
    using Columns = Columns<Real, N, GROUPS>;
    constexpr int width = Columns::WIDTH;
    extern __shared__ __align__(16) unsigned char shared[];
    auto* factors = reinterpret_cast<Complex<Real>*>(shared);
    for (int i = threadIdx.x; i < count * N; i += Columns::THREADS) factors[i] = {Real(a[i].x), Real(a[i].y)};
    __syncthreads();
    const long long field = rows * Columns::COUNT;
    const auto* own = reinterpret_cast<const Vector<Real, width>*>(factors + Columns::first_rhs());
    Columns::for_one(rows, [&](long long i) {
        Real yr[width], yi[width];
        unpack(y[i], yr, yi);
        if (scale)
            #pragma unroll
            for (int w = 0; w < width; w++) {
                const double2 s = scale[Columns::first_rhs() + w];
                const Real re = yr[w], sr = Real(s.x), si = Real(s.y);
                yr[w] = sr * re - si * yi[w];
                yi[w] = sr * yi[w] + si * re;
            }
        #pragma unroll 4
        for (int k = 0; k < count; k++) {
            Real xr[width], xi[width], ar[width], ai[width];
            unpack(xs[k * field + i], xr, xi);
            unpack(own[k * Columns::COUNT], ar, ai);
            #pragma unroll
            for (int w = 0; w < width; w++) add_multiple(yr[w], yi[w], ar[w], ai[w], xr[w], xi[w]);
        }
        pack(y[i], yr, yi);
    });
}

// y += sum_k c[k] v[k] and v[0] -= sum_k c[k] v[k + 1], each field read once; c as `a` above.
template <class Real, int N, int GROUPS>
__global__ void __launch_bounds__(Columns<Real, N, GROUPS>::THREADS)
    lane_polynomial(RowVector<Real, N>* __restrict__ y, RowVector<Real, N>* v, const double2* __restrict__ c,
                    long long rows, int count) {
    using Columns = Columns<Real, N, GROUPS>;
    constexpr int width = Columns::WIDTH;
    extern __shared__ __align__(16) unsigned char shared[];
    auto* factors = reinterpret_cast<Complex<Real>*>(shared);
    for (int i = threadIdx.x; i < count * N; i += Columns::THREADS) factors[i] = {Real(c[i].x), Real(c[i].y)};
    __syncthreads();
    const long long field = rows * Columns::COUNT;
    const auto* own = reinterpret_cast<const Vector<Real, width>*>(factors + Columns::first_rhs());
    Columns::for_one(rows, [&](long long i) {
        Real yr[width], yi[width], rr[width], ri[width], xr[width], xi[width];
        unpack(y[i], yr, yi);
        unpack(v[i], rr, ri);
        #pragma unroll
        for (int w = 0; w < width; w++) xr[w] = rr[w], xi[w] = ri[w];
        #pragma unroll 4
        for (int k = 0; k < count; k++) {
            Real nr[width], ni[width], cr[width], ci[width];
            unpack(v[(k + 1) * field + i], nr, ni);
            unpack(own[k * Columns::COUNT], cr, ci);
            #pragma unroll
            for (int w = 0; w < width; w++) {
                add_multiple(yr[w], yi[w], cr[w], ci[w], xr[w], xi[w]);
                rr[w] -= cr[w] * nr[w];
                rr[w] += ci[w] * ni[w];
                ri[w] -= cr[w] * ni[w];
                ri[w] -= ci[w] * nr[w];
                xr[w] = nr[w], xi[w] = ni[w];
            }
        }
        pack(y[i], yr, yi);
        pack(v[i], rr, ri);
    });
}
