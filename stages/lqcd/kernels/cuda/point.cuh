// A point of the periodic lattice with extents known at compile time, for kernels that take directions at run time.
// Points are numbered [parity][site], sites within a parity as in stages/lqcd/lattice/geometry.py.

template <int X, int Y, int Z, int T> struct Point {
    static constexpr int EXTENTS[4] = {X, Y, Z, T}, SITES = X * Y * Z * T / 2;
    int coordinates[4], parity;

    // Point number i of [parity][site].
    static __device__ __forceinline__ Point of(unsigned i) {
        Point p;
        p.parity = i / SITES, i %= SITES;
        const int half_x = i % (X / 2);
        i /= X / 2;
        p.coordinates[1] = i % Y, i /= Y;
        p.coordinates[2] = i % Z;
        p.coordinates[3] = i / Z;
        p.coordinates[0] = 2 * half_x + ((p.coordinates[1] + p.coordinates[2] + p.coordinates[3] + p.parity) & 1);
        return p;
    }

    // One hop along mu, step = 1 or -1.
    __device__ __forceinline__ Point moved(int mu, int step) const {
        Point p = *this;
        #pragma unroll
        for (int d = 0; d < 4; d++)
            if (d == mu) p.coordinates[d] = (p.coordinates[d] + step + EXTENTS[d]) % EXTENTS[d];
        p.parity ^= 1;
        return p;
    }

    __device__ __forceinline__ unsigned site() const {
        const auto& c = coordinates;
        return ((unsigned(c[3]) * Z + c[2]) * Y + c[1]) * (X / 2) + c[0] / 2;
    }

    __device__ __forceinline__ unsigned number() const { return unsigned(parity) * SITES + site(); }

    // Number among all sites of the lattice, x fastest.
    __device__ __forceinline__ unsigned lexicographic() const {
        const auto& c = coordinates;
        return ((unsigned(c[3]) * Z + c[2]) * Y + c[1]) * X + c[0];
    }
};
