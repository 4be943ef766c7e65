"""Products in single precision on tensor cores; double precision, in which no cycle runs, is refused."""

from __future__ import annotations

from dataclasses import dataclass

import cupy
import numpy as np

from stages.errors import InputError
from stages.lqcd.kernels.cuda.compile import run
from stages.lqcd.kernels.cuda.launch import coarse


@dataclass(frozen=True)
class PackedCoarseLinks:
    """Matrices in the order of the kernel, and int32 neighbours ``[site, direction]`` of output sites.

    tiles: complex64 ``[site, group of 16 rows, direction, group of 8 columns, lane, 4]``, zero beyond n; see
    `coarse_dslash.cu`.
    """

    tiles: cupy.ndarray
    neighbours: cupy.ndarray
    components: int
    input_sites: int

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(np.complex64)


def pack(links: cupy.ndarray, neighbours: cupy.ndarray) -> PackedCoarseLinks:
    if links.dtype != np.complex64:
        raise InputError(f"multigrid on a GPU has complex64 links, got {links.dtype}: convert them")
    sites, directions, n, _ = links.shape
    groups, chunks = -(-n // coarse.ROWS), -(-n // coarse.TERMS)
    padded = cupy.zeros((sites, directions, groups * coarse.ROWS, chunks * coarse.TERMS), links.dtype)
    padded[:, :, :n, :n] = links
    # rows = (group, high, g), columns = (chunk, half, t) to (group, direction, chunk, g, t, half, high)
    split = padded.reshape(sites, directions, groups, 2, 8, chunks, 2, 4)
    tiles = cupy.ascontiguousarray(split.transpose(0, 2, 1, 5, 4, 7, 6, 3))
    table = cupy.asarray(neighbours)
    tiles = tiles.reshape(sites, groups, directions, chunks, 32, 4)
    return PackedCoarseLinks(tiles, table, n, int(neighbours.max()) + 1)


def coarse_dslash(
    packed: PackedCoarseLinks,
    x: cupy.ndarray,
    out: cupy.ndarray,
    *,
    diagonal: cupy.ndarray | None = None,
    a: float = 0.0,
    b: float = 1.0,
) -> cupy.ndarray:
    start(packed, x, out, diagonal, a, b)
    return out


def start(
    packed: PackedCoarseLinks,
    x: cupy.ndarray,
    out: cupy.ndarray,
    diagonal: cupy.ndarray | None = None,
    a: float = 0.0,
    b: float = 1.0,
    groups: int | None = None,
    split: int | None = None,
) -> None:
    """Start the kernel unchecked; groups and split as in `launch.coarse.coarse_dslash`."""
    sites, directions = packed.neighbours.shape
    kernel = coarse.coarse_dslash(packed.components, x.shape[2], directions, sites, groups, split)
    nothing = np.uintp(0)
    run(
        kernel,
        packed.tiles,
        packed.neighbours,
        x,
        nothing if diagonal is None else diagonal,
        out,
        np.float32(a),
        np.float32(b),
    )
