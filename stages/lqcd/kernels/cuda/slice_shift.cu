// Covariant shift within time slices: out(x) = U(x) field(x + MU) for STEP 1, U(x - MU)^dag field(x - MU) for STEP -1.
// links: [parity][site][3][3] of direction MU; field and out: [slice][parity][site][3][column], the first slice being
// slice `first` of the lattice. LANES threads share a row's columns.

#include "complex.cuh"
#include "geometry.cuh"

template <class Real, class L, int MU, int STEP, int LANES>
__global__ void __launch_bounds__(256)
    slice_shift(const Complex<Real>* __restrict__ links, const Complex<Real>* __restrict__ field,
                Complex<Real>* __restrict__ out, int rows, int columns, int first) {
    constexpr int sites = L::SITES_PER_SLICE;
    const int row = blockIdx.x * (256 / LANES) + threadIdx.x / LANES;
    if (row >= rows) return;
    const int slice = row / (2 * sites), parity = row / sites % 2;
    const unsigned start = unsigned(first + slice) * sites, here = start + row % sites;
    const unsigned there = neighbour<L, MU, STEP>(site_of<L>(here), parity);

    const Complex<Real>* link =
        links + (STEP > 0 ? size_t(parity) * L::SITES + here : size_t(1 - parity) * L::SITES + there) * 9;
    Complex<Real> u[3][3];
    #pragma unroll
    for (int i = 0; i < 3; i++)
        #pragma unroll
        for (int k = 0; k < 3; k++) {
            const Complex<Real> element = __ldg(link + (STEP > 0 ? 3 * i + k : 3 * k + i));
            u[i][k] = {element.x, STEP > 0 ? element.y : -element.y};
        }

    const Complex<Real>* from = field + ((size_t(2 * slice + 1 - parity) * sites) + (there - start)) * 3 * columns;
    Complex<Real>* to = out + size_t(row) * 3 * columns;
    for (int j = threadIdx.x % LANES; j < columns; j += LANES) {
        Complex<Real> v[3];
        #pragma unroll
        for (int k = 0; k < 3; k++) v[k] = __ldg(from + k * size_t(columns) + j);
        #pragma unroll
        for (int i = 0; i < 3; i++) {
            Real re = 0, im = 0;
            #pragma unroll
            for (int k = 0; k < 3; k++) {
                re += u[i][k].x * v[k].x - u[i][k].y * v[k].y;
                im += u[i][k].x * v[k].y + u[i][k].y * v[k].x;
            }
            to[i * size_t(columns) + j] = {re, im};
        }
    }
}
