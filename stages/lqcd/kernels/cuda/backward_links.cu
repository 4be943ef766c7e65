// Coarse links against the directions, and what hops inside of aggregates add to the local matrices:
//   links(s, 2 mu + 1) = g links(behind(s, mu), 2 mu)^H g,   diagonal(s) += sum_mu inside_mu(s) + g inside_mu(s)^H g
// with g = +1 on the first N / 2 components and -1 on the others.
//
// A block has a site. It turns TILE x TILE numbers at a time in shared memory.

#include "complex.cuh"
#include "share.cuh"

constexpr int TILE = 32, THREADS = 256, ROWS = THREADS / TILE, ROUNDS = TILE / ROWS;

// grid (sites); behind [site][4].
template <class Real, int N>
__global__ void __launch_bounds__(THREADS)
    backward_links(Complex<Real>* diagonal, const Complex<Real>* inside_x, const Complex<Real>* inside_y,
                   const Complex<Real>* inside_z, const Complex<Real>* inside_t, Complex<Real>* links,
                   const int* __restrict__ behind) {
    constexpr int tiles = ceil_div(N, TILE), size = N * N;
    __shared__ Complex<Real> beyond[TILE][TILE + 1], own[TILE][TILE + 1];
    const Complex<Real>* inside[4] = {inside_x, inside_y, inside_z, inside_t};
    const int x = threadIdx.x % TILE, y = threadIdx.x / TILE;
    const size_t site = block_of_share<1>(blockIdx.x);
    for (int tile = 0; tile < tiles * tiles; tile++) {
        const int top = tile / tiles * TILE, left = tile % tiles * TILE;  // of what is written
        const auto within = [](int row, int column) { return N % TILE == 0 || row < N && column < N; };
        Complex<Real> sums[ROUNDS];
        #pragma unroll
        for (int k = 0; k < ROUNDS; k++) {
            const int row = top + y + k * ROWS, column = left + x;
            sums[k] = within(row, column) ? diagonal[site * size + row * N + column] : Complex<Real>{};
        }
        #pragma unroll
        for (int mu = 0; mu < 4; mu++) {
            const Complex<Real>* link = links + (size_t(behind[site * 4 + mu]) * 8 + 2 * mu) * size;
            const Complex<Real>* matrix = inside[mu] + site * size;
            #pragma unroll
            for (int k = 0; k < ROUNDS; k++) {
                const int row = left + y + k * ROWS, column = top + x;
                if (!within(row, column)) continue;
                beyond[y + k * ROWS][x] = link[row * N + column];
                own[y + k * ROWS][x] = matrix[row * N + column];
            }
            __syncthreads();
            #pragma unroll
            for (int k = 0; k < ROUNDS; k++) {
                const int row = top + y + k * ROWS, column = left + x;
                if (!within(row, column)) continue;
                const Real sign = (row < N / 2) == (column < N / 2) ? 1 : -1;
                const Complex<Real> v = beyond[x][y + k * ROWS], w = own[x][y + k * ROWS];
                const Complex<Real> u = matrix[row * N + column];
                links[(site * 8 + 2 * mu + 1) * size + row * N + column] = {sign * v.x, -sign * v.y};
                sums[k].x += u.x + sign * w.x, sums[k].y += u.y - sign * w.y;
            }
            __syncthreads();
        }
        #pragma unroll
        for (int k = 0; k < ROUNDS; k++) {
            const int row = top + y + k * ROWS, column = left + x;
            if (within(row, column)) diagonal[site * size + row * N + column] = sums[k];
        }
    }
}
