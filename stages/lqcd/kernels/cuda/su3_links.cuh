// Links of Wilson-type operators in the three forms in which they are kept. A link is w s U with U in SU(3), w > 0 its
// direction's weight and s = +-1; f = s / w is common to a direction d, but for a sign on links that cross the
// lattice's edge. In 12 reals factors are f[8], then the sign at the edge in each mu, and
//   third row = f conj(row 0 x row 1).

#include "links.cuh"

// A link as `carry` reads it, row by row.
template <class Real> struct WholeLink {
    const Complex<Real>* elements;

    __device__ __forceinline__ void row(int i, Complex<Real> (&row)[3]) const {
        #pragma unroll
        for (int j = 0; j < 3; j++) row[j] = elements[3 * i + j];
    }
};

template <class Real> struct TwoRowLink {
    const Complex<Real>* elements;
    Real factor;

    __device__ __forceinline__ void row(int i, Complex<Real> (&row)[3]) const {
        #pragma unroll
        for (int j = 0; j < 3; j++) row[j] = i < 2 ? elements[3 * i + j] : third(j);
    }

  private:
    __device__ __forceinline__ Complex<Real> third(int j) const {
        const Complex<Real> a = elements[(j + 1) % 3], b = elements[3 + (j + 2) % 3], c = elements[(j + 2) % 3],
                            d = elements[3 + (j + 1) % 3];
        const Real re = a.x * b.x - a.y * b.y - c.x * d.x + c.y * d.y;
        const Real im = a.x * b.y + a.y * b.x - c.x * d.y - c.y * d.x;
        return {factor * re, -factor * im};
    }
};

// f of the link that leads from a site over the edge of the lattice, or not.
template <class Real> __device__ __forceinline__ Real factor_of(const Real* factors, int d, bool at_edge) {
    return at_edge ? __ldg(factors + d) * __ldg(factors + 8 + d / 2) : __ldg(factors + d);
}

// 18 reals: the matrix.
template <class Real, int TILE_SITES, int SITES, int THREADS>
struct SU3Links18 : LinkRuns<Real, 9, 8, TILE_SITES, SITES, THREADS> {
    static __device__ __forceinline__ WholeLink<Real> view(const Complex<Real>* elements, const Real*, int, bool) {
        return {elements};
    }

    __device__ __forceinline__ WholeLink<Real> link(int d, int site, const Real*, bool) const {
        return {this->elements(d, site)};
    }
};

// 12 reals: two rows.
template <class Real, int TILE_SITES, int SITES, int THREADS>
struct SU3Links12 : LinkRuns<Real, 6, 8, TILE_SITES, SITES, THREADS> {
    static __device__ __forceinline__ TwoRowLink<Real> view(const Complex<Real>* elements, const Real* factors, int d,
                                                            bool at_edge) {
        return {elements, factor_of(factors, d, at_edge)};
    }

    __device__ __forceinline__ TwoRowLink<Real> link(int d, int site, const Real* factors, bool at_edge) const {
        return view(this->elements(d, site), factors, d, at_edge);
    }
};

// A link times its weight; a backward one lies transposed, and what is wanted is its adjoint.
template <class Real> struct WeightedLink {
    const Complex<Real>* elements;
    Real weight;
    bool back;

    __device__ __forceinline__ void row(int i, Complex<Real> (&row)[3]) const {
        #pragma unroll
        for (int j = 0; j < 3; j++) {
            const Complex<Real> e = elements[3 * i + j];
            row[j] = {weight * e.x, back ? -(weight * e.y) : weight * e.y};
        }
    }
};

// As their fields lie (links.cuh), [mu][parity][site][3][3] without weights: these are the factors.
template <class Real, int TILE_SITES, int SITES, int THREADS>
struct SU3LinksInFields : LinksInFields<Real, 8, TILE_SITES, SITES, THREADS> {
    __device__ __forceinline__ WeightedLink<Real> link(int d, int site, const Real* factors, bool) const {
        return {this->elements(d, site), __ldg(factors + d), d % 2 == 1};
    }
};
