// Order in which the tiles of the lattice are visited, or those of a device.

#include "geometry.cuh"
#include "share.cuh"

template <int X_, int Y_, int Z_, int T_> struct Tile {
    static constexpr int HALF_X = X_, Y = Y_, Z = Z_, T = T_;
    static constexpr int SITES = X_ * Y_ * Z_ * T_;
};

// Visits the tiles of a lattice: x fastest, then y and z within a chunk, then t, then the chunks of y and z. Where
// the lattice lies on several devices, tiles whose hops leave the device are mixed with those next to them
// (`TileOrder`).
template <class L, class Tile, int Y_CHUNK, int Z_CHUNK> struct Traversal {
    static constexpr int X = L::HALF_X / Tile::HALF_X, Y = L::Y / Tile::Y, Z = L::Z / Tile::Z, T = L::T / Tile::T;

    static __device__ __forceinline__ Site tile(unsigned step) {
        Site tile;
#ifdef SPREAD
        const Share& share = device_share;
        unsigned chunk = __umulhi(step, share.reciprocal);
        if (step - chunk * share.in_chunk >= share.in_chunk) chunk++;
        step -= chunk * share.in_chunk;
        const bool late = step >= share.in_chunk - share.mixed, mixed = late || step < share.mixed;
        if (late) step -= share.in_chunk - share.mixed;
        const unsigned before = mixed ? __umulhi(step, share.ratio) : 0;
        const bool at_edge = mixed && __umulhi(step + 1, share.ratio) > before;
        step = at_edge ? before : step - before;
#endif
        tile.half_x = step % X, step /= X;
        tile.y = step % Y_CHUNK, step /= Y_CHUNK;
        tile.z = step % Z_CHUNK, step /= Z_CHUNK;
#ifdef SPREAD
        const unsigned inner = late ? share.layers - share.edges - share.beside : mixed ? share.edges : 0;
        const unsigned layer = step + (at_edge ? late * (share.layers - share.edges) : inner);
        tile.t = share.first_layer + share.layer_step * layer;
        step = chunk;
#else
        tile.t = step % T, step /= T;
#endif
        tile.y += step % (Y / Y_CHUNK) * Y_CHUNK, step /= Y / Y_CHUNK;
        tile.z += step * Z_CHUNK;
        return tile;
    }

    static __device__ __forceinline__ unsigned number(Site tile) {
        return ((unsigned(tile.t) * Z + tile.z) * Y + tile.y) * X + tile.half_x;
    }
};
