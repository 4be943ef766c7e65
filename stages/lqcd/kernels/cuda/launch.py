"""Launches of kernels, and what the launch functions of all families share: no device is needed.

Constants were chosen by measurement on an H200 (docs/notes/cuda_kernels_h200.md). Nothing here asks the
device: the same shape adds in the same order on every GPU. Shared memory stays within the 163 KB of an A100.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, wraps
from inspect import signature
from itertools import product
from math import ceil, log2, prod
from typing import ParamSpec, cast

import numpy as np

from stages.base.errors import InputError
from stages.lqcd.kernels.cuda.devices.partition import RowWork, TileWork, Work
from stages.lqcd.lattice.geometry import Lattice

P = ParamSpec("P")

WARPS_THREADS = 64
"""More warps a block share nothing; fewer leave the block limit of a multiprocessor in the way."""

TILES = 6
"""Matrices per lane in shared memory while staples are summed: one staple arrives, one is used."""

MAX_RHS = 64

BLOCK_THREADS = 256
"""Threads of a block where nothing speaks against it."""

MULTIPROCESSORS = 132
"""The grids of reductions and streaming kernels are multiples of this number, whatever the device."""

BLOCK_SHARED = 163 * 1024
"""Shared memory that a block can have, on an A100."""

MULTIPROCESSOR_SHARED = 227 * 1024
"""Shared memory of a multiprocessor; it bounds how many blocks can be resident."""

REGISTERS = 65536
"""Of a multiprocessor, likewise."""

INDEX_LIMIT = 1 << 32
"""Vectors of a field that the dslash can count."""

Box = tuple[int, int, int, int]

BlockShape = tuple[int, int, int]
"""Right-hand sides per thread, threads of a block, and resident threads of a multiprocessor."""


@dataclass(frozen=True)
class Launch:
    """An instance of a kernel template of a `.cu` file, and how to start it."""

    file: str
    instance: str
    grid: tuple[int, ...]
    threads: int
    shared_bytes: int = 0
    for_lattice: bool = False
    """Whether the lattice's extents are in the instance: another lattice needs another kernel."""
    work: Work | None = None
    """What several devices share of it; without, the first one does it all."""
    narrower: Callable[[Sequence[int]], list[Launch]] | None = field(default=None, compare=False, repr=False)
    """This kernel for those of some numbers of right-hand sides that are less than its own."""


def narrowable(launch_function: Callable[P, Launch]) -> Callable[P, Launch]:
    """Keep the launches of a function of `n` right-hand sides, and let each give those of fewer.

    `Launch.narrower` calls the function with another n and all other arguments as they are.
    """
    parameters = signature(launch_function)

    @cache
    def kept(*arguments: P.args, **named: P.kwargs) -> Launch:
        given = parameters.bind(*arguments, **named).arguments

        def narrower(widths: Sequence[int]) -> list[Launch]:
            return [kept(**{**given, "n": n}) for n in widths if n < given["n"]]

        return replace(launch_function(*arguments, **named), narrower=narrower)

    return cast(Callable[P, Launch], wraps(launch_function)(kept))


@cache
def matrix_launch(file: str, kernel: str, count: int, segments: int = 1) -> Launch:
    """A kernel on so many matrices, each by itself: of projections or stout smearing.

    segments: equal runs of matrices, each in the order of sites, of which devices have a part each.
    """
    work = RowWork(count // segments, WARPS_THREADS, segments=segments)
    return Launch(file, kernel, (ceil(count / WARPS_THREADS),), WARPS_THREADS, work=work)


def by_warps(
    file: str, instance: str, sites: int, tiles: int, dtype: np.dtype, work: RowWork | None = None
) -> Launch:
    shared, grid = WARPS_THREADS * tiles * 9 * dtype.itemsize, (ceil(sites / WARPS_THREADS),)
    return Launch(file, instance, grid, WARPS_THREADS, shared, for_lattice=True, work=work)


def warp_work(lattice: Lattice, parities: int = 1) -> RowWork:
    """The work of a kernel on the sites of one or both parities, a warp at a time, that devices share."""
    return RowWork(lattice.half_volume, WARPS_THREADS, segments=parities)


def on_lattice(kernel: str, lattice: Lattice, dtype: np.dtype) -> str:
    return f"{kernel}<{real_of(dtype)}, {listed(lattice.extents)}>"


def check_rhs(*counts: int) -> None:
    for n in counts:
        if not 1 <= n <= MAX_RHS:
            raise InputError(f"CUDA kernels take 1 to {MAX_RHS} right-hand sides, got {n}: split the block")


def instance(kernel: str, dtype: np.dtype, *arguments: object) -> str:
    return f"{kernel}<{', '.join(map(str, (real_of(dtype), *arguments)))}>"


def real_of(dtype: np.dtype) -> str:
    return "float" if dtype == np.complex64 else "double"


def extents_of(lattice: Lattice) -> str:
    return f"Extents<{listed(lattice.extents)}>"


def listed(arguments: tuple[object, ...]) -> str:
    return ", ".join(map(str, arguments))


def divisors(n: int) -> list[int]:
    return [d for d in range(1, n + 1) if n % d == 0]


def power_of_two(n: int) -> int:
    """The largest power of two up to n."""
    return 1 << (max(1, n).bit_length() - 1)


@dataclass(frozen=True)
class DslashShape:
    """Shape of a dslash of `rhs` right-hand sides: sites of a tile per block, order of the tiles.

    Chunks of the traversal are in tiles; `resident_threads` per multiprocessor bounds the registers.
    """

    lattice: Lattice
    rhs: int
    tile: Box
    rhs_per_thread: int
    sites_per_block: int
    y_chunk: int
    z_chunk: int
    resident_threads: int

    @classmethod
    def of(
        cls, lattice: Lattice, tile: Box, n: int, block: BlockShape, chunks: tuple[int, int]
    ) -> DslashShape:
        """Blocks of up to so many threads on the sites of a tile, `n` right-hand sides each.

        chunks: sites of a chunk along y and z, at most.
        """
        rhs, threads, resident = block
        sites = largest_divisor(prod(tile), threads // (n // rhs))
        y, z = (largest_divisor(lattice.extents[i] // tile[i], chunks[i - 1] // tile[i]) for i in (1, 2))
        return cls(lattice, n, tile, rhs, sites, y, z, resident)

    def launch(
        self,
        kernel: str,
        dtype: np.dtype,
        shared_bytes: int,
        reach: int,
        kinds: tuple[object, ...],
        choices: tuple[object, ...] = (),
    ) -> Launch:
        """A kernel of the file of its name in this shape; its hops go `reach` slices in t.

        kinds: template arguments before the width. choices: those after the order of the tiles.
        """
        threads = self.sites_per_block * (self.rhs // self.rhs_per_thread)
        resident = self.resident_threads // 32 // ceil(threads / 32)
        blocks = max(1, min(resident, MULTIPROCESSOR_SHARED // max(1, shared_bytes)))
        geometry = (extents_of(self.lattice), f"Tile<{listed(self.tile)}>")
        block = (self.rhs, self.rhs_per_thread, self.sites_per_block, blocks, self.y_chunk, self.z_chunk)
        return Launch(
            f"{kernel}.cu",
            instance(kernel, dtype, *geometry, *kinds, *block, *choices),
            (self.lattice.half_volume // self.sites_per_block,),
            threads,
            shared_bytes,
            for_lattice=True,
            work=self._work(reach),
        )

    def _work(self, reach: int) -> TileWork:
        """The work that devices share."""
        x, _, _, t = self.lattice.extents
        layer = x // 2 // self.tile[0] * self.y_chunk * self.z_chunk
        return TileWork(t // self.tile[3], self.tile[3], layer, reach)


def nearest_box(lattice: Lattice, wish: Box) -> Box:
    """The largest box, up to the one wished for, that divides one parity's lattice.

    Among those of a size the one of the most similar shape; it has an even number of sites.
    """

    def distance(box: Box) -> tuple[int, float]:
        return -prod(box), sum(abs(log2(side / wished)) for side, wished in zip(box, wish, strict=True))

    x, y, z, t = lattice.extents
    boxes = product(divisors(x // 2), divisors(y), divisors(z), divisors(t))
    return min((box for box in boxes if prod(box) <= prod(wish) and prod(box) % 2 == 0), key=distance)


@cache
def largest_divisor(n: int, most: int) -> int:
    """The largest divisor of n up to `most`, and at least one."""
    return next(d for d in range(min(n, max(1, most)), 0, -1) if n % d == 0)
