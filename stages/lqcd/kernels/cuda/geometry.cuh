// The periodic lattice with extents known at compile time. Sites of one parity are numbered as in
// stages/lqcd/lattice/geometry.py: x fastest and halved, then y, z, t.

template <int X_, int Y_, int Z_, int T_> struct Extents {
    static constexpr int X = X_, Y = Y_, Z = Z_, T = T_, HALF_X = X_ / 2;
    static constexpr int SITES = HALF_X * Y * Z * T;
    static constexpr int SITES_PER_SLICE = SITES / T;
};

struct Site {
    int half_x, y, z, t;
};

template <class L> __device__ __forceinline__ unsigned number(Site s) {
    return ((unsigned(s.t) * L::Z + s.z) * L::Y + s.y) * L::HALF_X + s.half_x;
}

// Inverse of `number` for a box of these dimensions (HALF_X, Y, Z, T).
template <class Box> __device__ __forceinline__ Site site_of(unsigned i) {
    Site s;
    s.half_x = i % Box::HALF_X, i /= Box::HALF_X;
    s.y = i % Box::Y, i /= Box::Y;
    s.z = i % Box::Z;
    s.t = i / Box::Z;
    return s;
}

template <int STEP, int EXTENT> __device__ __forceinline__ int shifted(int coordinate) {
    constexpr int step = STEP % EXTENT;
    const int c = coordinate + step;
    return c >= EXTENT ? c - EXTENT : c < 0 ? c + EXTENT : c;
}

// Number, within its own parity, of the site STEP (odd) hops along MU from site s of `parity`.
template <class L, int MU, int STEP> __device__ __forceinline__ unsigned neighbour(Site s, int parity) {
    if constexpr (MU == 0) {
        const int x = 2 * s.half_x + ((s.y + s.z + s.t + parity) & 1);
        s.half_x = shifted<STEP, L::X>(x) >> 1;
    }
    if constexpr (MU == 1) s.y = shifted<STEP, L::Y>(s.y);
    if constexpr (MU == 2) s.z = shifted<STEP, L::Z>(s.z);
    if constexpr (MU == 3) s.t = shifted<STEP, L::T>(s.t);
    return number<L>(s);
}
