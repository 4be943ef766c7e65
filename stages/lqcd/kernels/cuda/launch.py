"""Launches of kernels, and what the launch functions of all families share: no device is needed.

Constants were chosen by measurement on an H200 (docs/cuda_kernels_h200.md). Nothing here asks the device: the
same shape adds in the same order on every GPU. Shared memory stays within the 163 KB of an A100.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, wraps
from inspect import signature
from math import ceil
from typing import ParamSpec, cast

import numpy as np

from stages.base.errors import InputError
from stages.lqcd.kernels.cuda.devices.partition import RowWork, Work
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
