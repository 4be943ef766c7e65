"""Cuts of one lattice that lies on several devices, in memory and in work; no device is needed here.

The lattice is cut in t, at whole time slices; parts differ by one slice at most. A field lies on the devices
as its longest axis, the sites, is cut, within each of the indices that lead it (`Partition.runs`). Kernels
follow the same cuts: rows of a field (`RowWork`), tiles of a dslash (`TileWork`), partial sums of each device
(`PartialWork`). All devices see all memory, so that a cut decides about speed and never about results.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby, pairwise
from math import ceil, prod
from typing import TypeGuard

import numpy as np
from numpy.typing import NDArray

from stages.base.errors import InputError

PAGE = 2 << 20
"""Bytes of memory of an array on several GPUs that lie on one."""

REACH = 3
"""Slices of t that hops reach: a GPU must hold so many, or more than two GPUs meet at a site."""

INNER = 2
"""Tiles visited between two that read other devices: measured among 1, 2 and 3 (docs/notes/scaling.md)."""

ALIGNMENT = 512
"""Of an array in its first page, as CuPy's are aligned."""

Run = tuple[int, int]
"""A part, and the number of pages in a row that lie on its device."""


def most_gpus(t: int) -> int:
    """GPUs that a lattice with so many time slices can be spread over at most."""
    return max(1, t // REACH)


def check_slices(t: int, gpus: int) -> None:
    """Raise InputError where a lattice with t time slices cannot be spread over so many GPUs."""
    if gpus > (most := most_gpus(t)):
        raise InputError(
            f"{t} time slices cannot be spread over {gpus} GPUs: hops reach {REACH} slices, and each GPU "
            f"must hold so many; take {f'{most} GPUs or fewer' if most > 1 else 'one GPU'}"
        )


@dataclass(frozen=True)
class Partition:
    """`t` slices over `parts` devices; InputError where a part has fewer than `REACH`."""

    parts: int
    t: int

    def __post_init__(self) -> None:
        if self.parts < 1:
            raise InputError(f"a lattice lies on one device or more, got {self.parts}")
        check_slices(self.t, self.parts)

    def cuts(self, extent: int) -> tuple[int, ...]:
        """Begin of each part of an axis that follows t, and the end."""
        slices = (round(part * self.t / self.parts) for part in range(self.parts + 1))
        return tuple(extent * cut // self.t for cut in slices)

    def runs(self, shape: tuple[int, ...], itemsize: int, page: int = PAGE) -> tuple[Run, ...]:
        """Pages of an array in their order in memory, as many in a row as lie on one device.

        A page that a cut falls into goes where more of it belongs. An array with less than a page for each
        device within a leading index lies on the first device.
        """
        return _placed(self, shape, itemsize, page)[1]

    def begin(self, shape: tuple[int, ...], itemsize: int, page: int = PAGE) -> int:
        """Bytes of its first page in front of an array.

        With them its cuts are nearest to begins of pages.
        """
        return _placed(self, shape, itemsize, page)[0]


@lru_cache(maxsize=1024)
def _placed(
    partition: Partition, shape: tuple[int, ...], itemsize: int, page: int
) -> tuple[int, tuple[Run, ...]]:
    """Begin and runs of an array."""
    axis = max(range(len(shape)), key=shape.__getitem__)
    segment = itemsize * prod(shape[axis:])
    size = itemsize * prod(shape)
    if partition.parts == 1 or segment < partition.parts * page:
        return 0, ((0, ceil(size / page)),)
    row = segment // shape[axis]
    ends = [row * cut for cut in partition.cuts(shape[axis])[1:]]
    cuts = np.arange(0, size, segment)[:, None] + ends

    def misplaced(begin: int) -> int:
        return int(np.minimum((cuts + begin) % page, -(cuts + begin) % page).ravel()[:-1].sum())

    begin = min((0, *(-end % page // ALIGNMENT * ALIGNMENT for end in ends)), key=misplaced)

    def part_of(number: int) -> int:
        middle = min(max(number * page + page // 2 - begin, 0), size - 1) % segment
        return next(part for part, end in enumerate(ends) if middle < end)

    owners = groupby(part_of(number) for number in range(ceil((begin + size) / page)))
    return begin, tuple((part, len(list(members))) for part, members in owners)


@dataclass(frozen=True)
class Share:
    """A device's share of a launch: its grid, and what `share.cuh` tells the kernel."""

    grid: tuple[int, ...]
    rows: tuple[int, int] = (0, 0)
    first_slice: int = 0
    segment_rows: int = 0
    tiles: TileOrder | None = None
    sums: bool = False
    """Whether sums go on over the devices."""

    def numbers(self, part: int, parts: int, totals: int, arrived: int) -> NDArray[np.void]:
        """`Share` of share.cuh; totals and arrived: addresses of what sums over devices need."""
        order = self.tiles
        tiles = (0,) * 9
        if order is not None:
            tiles = (
                *(order.begin, order.step, order.layers, order.edges, order.beside),
                *(order.in_chunk, order.mixed, order.reciprocal, order.ratio),
            )
        sums = (part, parts if self.sums else 1)
        return np.array(
            (totals, arrived, *self.rows, self.first_slice, self.segment_rows, *tiles, *sums), SHARE
        )


SHARE = np.dtype(
    [
        *((name, np.uint64) for name in ("totals", "arrived")),
        *((name, np.int64) for name in ("first_row", "end_row")),
        *((name, np.uint32) for name in ("first_slice", "segment_rows", "first_layer")),
        ("layer_step", np.int32),
        *((name, np.uint32) for name in ("layers", "edges", "beside")),
        *((name, np.uint32) for name in ("in_chunk", "mixed", "reciprocal", "ratio")),
        *((name, np.uint32) for name in ("device", "devices")),
    ],
    align=True,
)
"""Layout of `Share` in share.cuh."""


@dataclass(frozen=True)
class RowWork:
    """A kernel on rows (`rows.cuh`), each by itself. per_block: rows of a block, or 0 where blocks go round.

    at_once: blocks that go round and fit on a device together. Of several devices each starts a multiple of
    them, so many that none has more rows than on a single one; 0: as many as on a single one.
    slices: of a reduction, runs of `rows` rows each with sums of its own; they are shared out whole.
    segments: runs of `rows` rows, of each of which a device has its share; the grid's third axis counts them.
    reads: whether the fields stay as they are, so that other devices may read them at the same time.
    clears: whether it overwrites numbers that other devices read in `OwnWork`, too.
    """

    rows: int
    per_block: int = 0
    slices: int = 1
    sums: bool = False
    segments: int = 1
    reads: bool = False
    at_once: int = 0
    clears: bool = False

    @property
    def cut(self) -> tuple[int, int, int]:
        """Numbers that are those of another kernel if both cut an array in the same way."""
        return self.rows, self.slices, self.segments

    def shares(self, partition: Partition, grid: tuple[int, ...]) -> list[Share]:
        if self.slices > 1:
            cuts = partition.cuts(self.slices)
            return [
                Share((grid[0], end - first), (0, self.rows), first_slice=first)
                for first, end in pairwise(cuts)
            ]
        shares = []
        for first, end in pairwise(even(partition.cuts(self.rows))):
            blocks = self._blocks(end - first, grid[0])
            along = (*(*grid, 1)[1:2], self.segments) if self.segments > 1 else grid[1:]
            shares.append(Share((blocks, *along), (first, end), sums=self.sums))
        return shares

    def _blocks(self, rows: int, whole: int) -> int:
        """Blocks of a device with so many rows, of a grid that has so many on one."""
        if self.per_block:
            return ceil(rows / self.per_block)
        if not self.at_once:
            return whole
        rounds = max(1, -(-whole * rows // (self.rows * self.at_once)))  # sums wait for every device
        return min(whole, rounds * self.at_once)


def even(cuts: tuple[int, ...]) -> list[int]:
    """Cuts moved to even rows, which start on 16 bytes for any number of right-hand sides."""
    return [*(cut // 2 * 2 for cut in cuts[:-1]), cuts[-1]]


@dataclass(frozen=True)
class PartialWork:
    """The end of a reduction: each device adds its partial sums, the last to finish adds those of devices.

    sums, numbers: counts of sums that end by themselves, and of the doubles in each.
    """

    sums: int = 1
    numbers: int = 1

    def shares(self, partition: Partition, grid: tuple[int, ...]) -> list[Share]:
        return [Share(grid, sums=True)] * partition.parts


@dataclass(frozen=True)
class OwnWork:
    """A small kernel that every device runs as a whole, into an array of its own."""

    def shares(self, partition: Partition, grid: tuple[int, ...]) -> list[Share]:
        return [Share(grid)] * partition.parts


@dataclass(frozen=True)
class TileOrder:
    """Order in which a device visits its tiles (`traversal.cuh`): layer after layer in each chunk of y and z.

    Those of the `edges` layers at either end, which read other devices, are mixed with the `INNER` times as
    many layers next to them: link and memory then work at the same time, and the second-level cache still
    holds what they read of their own device. Every other device goes back in t (`back`): two that share a cut
    are there at the same time, and what one reads of the other is in the other's cache.
    first: layer of tiles where the part begins. layers: of the part, none where tiles are longer. chunk:
    tiles of one layer in a chunk.
    """

    first: int
    layers: int
    edges: int
    chunk: int
    back: bool = False

    @property
    def begin(self) -> int:
        """Layer that is visited first."""
        return self.first + (self.layers - 1) * self.back

    @property
    def step(self) -> int:
        """Way from a layer to the next."""
        return -1 if self.back else 1

    @property
    def beside(self) -> int:
        """Layers at either end with which those at the edge are mixed."""
        return min(INNER * self.edges, (self.layers - 2 * self.edges) // 2)

    @property
    def in_chunk(self) -> int:
        return self.chunk * self.layers

    @property
    def mixed(self) -> int:
        """Steps of a chunk, at its begin and at its end, that are mixed."""
        return self.chunk * (self.edges + self.beside)

    @property
    def reciprocal(self) -> int:
        """2^32 / tiles of a chunk, rounded down: division is a product and one correction."""
        return min((1 << 32) // max(1, self.in_chunk), (1 << 32) - 1)

    @property
    def ratio(self) -> int:
        """2^32 edge tiles / mixed ones, rounded up: the upper half of i times it counts those before i."""
        return -((-self.edges * self.chunk << 32) // self.mixed) if self.mixed else 0


@dataclass(frozen=True)
class TileWork:
    """A kernel that takes a tile of sites, or part of one, in each block and reads neighbours' sites.

    t_tiles: layers of tiles, of `t_sites` slices each. chunk: tiles of one layer in a chunk of the traversal.
    reach: slices that the longest hop goes; 0 where a slice is by itself, as rows are.
    """

    t_tiles: int
    t_sites: int
    chunk: int
    reach: int = REACH

    @property
    def cut(self) -> tuple[int, int, int]:
        """Numbers like those of `RowWork`, of which none is equal: layers and slices of a tile."""
        return self.t_tiles, -self.t_sites, 0

    def shares(self, partition: Partition, grid: tuple[int, ...]) -> list[Share]:
        cuts = [round(cut / self.t_sites) for cut in partition.cuts(self.t_tiles * self.t_sites)]
        shares = []
        for part, (first, end) in enumerate(pairwise(cuts)):
            edges = ceil(self.reach / self.t_sites)
            edges = edges if 2 * edges + 2 <= end - first else 0
            order = TileOrder(first, end - first, edges, self.chunk, back=part % 2 == 1)
            shares.append(Share((grid[0] // self.t_tiles * (end - first), *grid[1:]), tiles=order))
        return shares

    def follows(self, partition: Partition) -> bool:
        """True if tiles begin where the lattice is cut: each device then writes rows of its own."""
        return not any(cut % self.t_sites for cut in partition.cuts(self.t_tiles * self.t_sites))


@dataclass(frozen=True)
class SiteWork:
    """A kernel of a grid that takes a site, or an aggregate of them, in `per_site` blocks along an axis.

    It reads other sites, or those of another grid. sites: of each of `segments` runs in their order, the even
    and the odd ones or all.
    """

    sites: int
    segments: int = 1
    axis: int = 0
    per_site: int = 1

    def shares(self, partition: Partition, grid: tuple[int, ...]) -> list[Share]:
        shares = []
        for first, end in pairwise(partition.cuts(self.sites)):
            blocks = list(grid)
            blocks[self.axis] = self.segments * (end - first) * self.per_site
            shares.append(Share(tuple(blocks), (first, end), segment_rows=self.sites))
        return shares


@dataclass(frozen=True)
class LibraryWork:
    """Calls of libraries on each device, which say themselves what falls to it."""

    def shares(self, partition: Partition, grid: tuple[int, ...]) -> list[Share]:
        return [Share(grid)] * partition.parts


Work = RowWork | PartialWork | OwnWork | TileWork | SiteWork | LibraryWork


@dataclass
class SinceMeeting:
    """Launches since the devices last waited for each other, which say if the next may follow.

    A stencil reads what other devices wrote, and they may overwrite what it still reads; who reads alone need
    not wait for it, unless its tiles lie across a cut, so that others wrote those rows. A sum over devices,
    or a launch on the first alone, leaves on one device what all read. Rows, and slices whose hops stay
    within them, stay with their device, as long as kernels cut them in one way.
    """

    partition: Partition
    stencil: bool = False
    across: bool = False
    result: bool = False
    own: bool = False
    rows: frozenset[tuple[int, int, int]] = frozenset()

    def asks_to_meet(self, work: Work | None) -> bool:
        if isinstance(work, PartialWork | OwnWork):
            return self.result  # a sum ends when all devices have come to it, past what they had to do
        if isinstance(work, RowWork) or _within_slices(work):
            overwrites = self.stencil and not (isinstance(work, RowWork) and work.reads)
            overwrites |= self.own and isinstance(work, RowWork) and work.clears
            return overwrites or self.across or self.result or not self.rows <= {work.cut}
        return self.stencil or self.result or self.own or bool(self.rows)

    def enter(self, work: Work | None) -> None:
        if isinstance(work, RowWork) or _within_slices(work):
            self.rows |= {work.cut}
        elif isinstance(work, (TileWork, SiteWork, LibraryWork)):
            self.stencil = True
            self.across |= not (isinstance(work, TileWork) and work.follows(self.partition))
        elif isinstance(work, OwnWork):
            self.own = True
        if work is None or isinstance(work, PartialWork) or (isinstance(work, RowWork) and work.sums):
            self.result = True


def _within_slices(work: Work | None) -> TypeGuard[TileWork]:
    """True for a kernel on tiles whose hops do not leave their slice."""
    return isinstance(work, TileWork) and not work.reach
