// One-link taste-singlet vector current per time slice (MILC's sign and normalisation):
//   J_mu(t) = - Im sum_{x in t, x of parity} noise(x)^dag U_mu(x) solution(x + mu).
// blockIdx.y counts the time slices of a device; partials lie as doubles [part][t][mu][rhs].

#include "block_sum.cuh"
#include "geometry.cuh"
#include "rows.cuh"

// - Im noise^dag U v for the right-hand sides of one vector column, added to sum; pointers stand at a site's colour 0
// in that column, `color` is the distance of colours.
template <class Real, int WIDTH>
__device__ __forceinline__ void contract(double* sum, const Real (&nr)[3][WIDTH], const Real (&ni)[3][WIDTH],
                                         const Complex<Real>* link, const Vector<Real, WIDTH>* v, int color) {
    Real vr[3][WIDTH], vi[3][WIDTH];
    #pragma unroll
    for (int c = 0; c < 3; c++) unpack(__ldg(v + c * color), vr[c], vi[c]);
    #pragma unroll
    for (int i = 0; i < 3; i++) {
        Real wr[WIDTH] = {}, wi[WIDTH] = {};
        #pragma unroll
        for (int j = 0; j < 3; j++) {
            const Complex<Real> u = __ldg(link + 3 * i + j);
            #pragma unroll
            for (int w = 0; w < WIDTH; w++) {
                wr[w] += u.x * vr[j][w] - u.y * vi[j][w];
                wi[w] += u.x * vi[j][w] + u.y * vr[j][w];
            }
        }
        #pragma unroll
        for (int w = 0; w < WIDTH; w++) sum[w] -= double(nr[i][w]) * wi[w] - double(ni[i][w]) * wr[w];
    }
}

template <class Real, class L, int N, int GROUPS>
__global__ void __launch_bounds__(Columns<Real, N, GROUPS>::THREADS)
    current_partials(const Complex<Real>* __restrict__ links, const RowVector<Real, N>* __restrict__ noise,
                     const RowVector<Real, N>* __restrict__ solution, double* partials, int parity) {
    using Columns = Columns<Real, N, GROUPS>;
    constexpr int width = Columns::WIDTH, color = Columns::COUNT;
    constexpr size_t direction = size_t(L::SITES) * 9;
    __shared__ double scratch[4 * width * Columns::THREADS / 2 + 1];
    const int column = threadIdx.x % Columns::COUNT, group = threadIdx.x / Columns::COUNT;

    double sum[4 * width] = {};
    for (int i = blockIdx.x * GROUPS + group; i < L::SITES_PER_SLICE; i += gridDim.x * GROUPS) {
        const unsigned s = slice_index() * L::SITES_PER_SLICE + i;
        const Site site = site_of<L>(s);
        Real nr[3][width], ni[3][width];
        #pragma unroll
        for (int c = 0; c < 3; c++) unpack(__ldg(noise + (size_t(s) * 3 + c) * color + column), nr[c], ni[c]);

        const auto add = [&](int mu, unsigned neighbour) {
            contract<Real, width>(sum + mu * width, nr, ni, links + mu * direction + size_t(s) * 9,
                                  solution + size_t(neighbour) * (3 * color) + column, color);
        };
        add(0, neighbour<L, 0, 1>(site, parity));
        add(1, neighbour<L, 1, 1>(site, parity));
        add(2, neighbour<L, 2, 1>(site, parity));
        add(3, neighbour<L, 3, 1>(site, parity));
    }
    sum_over_groups<Columns::COUNT, GROUPS>(sum, scratch);
    if (group > 0) return;
    double* part = partials + (size_t(blockIdx.x) * L::T + slice_index()) * (4 * N) + column * width;
    for (int mu = 0; mu < 4; mu++)
        for (int w = 0; w < width; w++) part[mu * N + w] = sum[mu * width + w];
}
