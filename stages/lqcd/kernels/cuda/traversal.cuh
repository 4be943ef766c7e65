// Order in which the tiles of the lattice are visited.

template <int X_, int Y_, int Z_, int T_> struct Tile {
    static constexpr int HALF_X = X_, Y = Y_, Z = Z_, T = T_;
    static constexpr int SITES = X_ * Y_ * Z_ * T_;
};

// Visits the tiles of a lattice: x fastest, then y and z within a chunk, then t, then the chunks of y and z.
template <class L, class Tile, int Y_CHUNK, int Z_CHUNK> struct Traversal {
    static constexpr int X = L::HALF_X / Tile::HALF_X, Y = L::Y / Tile::Y, Z = L::Z / Tile::Z, T = L::T / Tile::T;

    static __device__ __forceinline__ Site tile(unsigned step) {
        Site tile;
        tile.half_x = step % X, step /= X;
        tile.y = step % Y_CHUNK, step /= Y_CHUNK;
        tile.z = step % Z_CHUNK, step /= Z_CHUNK;
        tile.t = step % T, step /= T;
        tile.y += step % (Y / Y_CHUNK) * Y_CHUNK, step /= Y / Y_CHUNK;
        tile.z += step * Z_CHUNK;
        return tile;
    }

    static __device__ __forceinline__ unsigned number(Site tile) {
        return ((unsigned(tile.t) * Z + tile.z) * Y + tile.y) * X + tile.half_x;
    }
};
