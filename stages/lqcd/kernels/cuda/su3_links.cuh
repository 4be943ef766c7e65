// Links of Wilson-type operators in the three forms in which they are kept. A link is w s U with U in SU(3), w > 0 its
// direction's weight and s = +-1; f = s / w is common to a direction d, but for a sign on links that cross the
// lattice's edge: factors are f[8], then the sign at the edge in each mu. In the short forms
//   third row = f conj(row 0 x row 1).

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
    __device__ __forceinline__ WholeLink<Real> link(int d, int site, const Real*, bool) const {
        return {this->elements(d, site)};
    }
};

// 12 reals: two rows.
template <class Real, int TILE_SITES, int SITES, int THREADS>
struct SU3Links12 : LinkRuns<Real, 6, 8, TILE_SITES, SITES, THREADS> {
    __device__ __forceinline__ TwoRowLink<Real> link(int d, int site, const Real* factors, bool at_edge) const {
        return {this->elements(d, site), factor_of(factors, d, at_edge)};
    }
};

// 8 reals of U: U_01, U_02, U_10 and the phases of U_00 and U_20 over pi. Threads make two rows of them in shared
// memory, without s / w, which `row` puts in.
template <class Real> struct NormalisedLink {
    TwoRowLink<Real> normalised;
    Real scale;

    __device__ __forceinline__ void row(int i, Complex<Real> (&row)[3]) const {
        normalised.row(i, row);
        #pragma unroll
        for (int j = 0; j < 3; j++) row[j].x *= scale, row[j].y *= scale;
    }
};

template <class Real, int TILE_SITES, int SITES, int THREADS>
struct SU3Links8 : LinkRuns<Real, 4, 8, TILE_SITES, SITES, THREADS> {
    using Runs = LinkRuns<Real, 4, 8, TILE_SITES, SITES, THREADS>;
    static constexpr int SHARED_BYTES = Runs::SHARED_BYTES + 2 * SITES * 6 * int(sizeof(Complex<Real>));

    // Rows [2][site][2][3] of one mu at a time.
    template <int MU, int LATER = 0> __device__ __forceinline__ void arrive() const {
        Runs::template arrive<MU, LATER>();
        #pragma unroll
        for (int i = 0; i < 2 * SITES; i += THREADS)
            if (i + THREADS <= 2 * SITES || i + Runs::thread() < 2 * SITES) {
                const int link = i + Runs::thread();
                rebuild(rows(link), this->elements(2 * MU, link));
            }
        Runs::synchronise();
    }

    __device__ __forceinline__ NormalisedLink<Real> link(int d, int site, const Real* factors, bool at_edge) const {
        return {{rows(d % 2 * SITES + site), Real(1)}, 1 / factor_of(factors, d, at_edge)};
    }

  private:
    __device__ __forceinline__ Complex<Real>* rows(int link) const {
        return reinterpret_cast<Complex<Real>*>(this->shared + Runs::SHARED_BYTES) + 6 * link;
    }

    // (a, b) from a_1, a_2, b_0 and the phases of a_0 and c_0; c is the third row.
    static __device__ __forceinline__ void rebuild(Complex<Real>* rows, const Complex<Real>* kept) {
        const Complex<Real> a1 = kept[0], a2 = kept[1], b0 = kept[2], phases = kept[3];
        const Real rest = a1.x * a1.x + a1.y * a1.y + a2.x * a2.x + a2.y * a2.y;
        const Real column = 1 - rest + b0.x * b0.x + b0.y * b0.y;
        const Complex<Real> a0 = polar(sqrt(fmax(1 - rest, Real(0))), phases.x);
        const Complex<Real> c0 = polar(sqrt(fmax(1 - column, Real(0))), phases.y);
        // t = conj(a_0) b_0; b_1 = -(conj(a_2 c_0) + a_1 t) / rest; b_2 = (conj(a_1 c_0) - a_2 t) / rest
        const Complex<Real> t = {a0.x * b0.x + a0.y * b0.y, a0.x * b0.y - a0.y * b0.x};
        const Real inverse = 1 / rest;
        rows[0] = a0, rows[1] = a1, rows[2] = a2, rows[3] = b0;
        rows[4] = {-inverse * (a2.x * c0.x - a2.y * c0.y + a1.x * t.x - a1.y * t.y),
                   inverse * (a2.x * c0.y + a2.y * c0.x - a1.x * t.y - a1.y * t.x)};
        rows[5] = {inverse * (a1.x * c0.x - a1.y * c0.y - a2.x * t.x + a2.y * t.y),
                   -inverse * (a1.x * c0.y + a1.y * c0.x + a2.x * t.y + a2.y * t.x)};
    }

    static __device__ __forceinline__ Complex<Real> polar(Real length, Real phase) {
        Real sine, cosine;
        sincospi(phase, &sine, &cosine);
        return {length * cosine, length * sine};
    }
};
