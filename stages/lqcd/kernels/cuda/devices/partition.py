"""Cuts of one lattice that lies on several devices, in memory and in work; no device is needed here.

The lattice is cut in t, at whole time slices; parts differ by one slice at most. A field lies on the devices
as its longest axis, the sites, is cut, within each of the indices that lead it (`Partition.runs`). Kernels
follow the same cuts: rows of a field (`RowWork`), tiles of a dslash (`TileWork`), partial sums of each device
(`PartialWork`). All devices see all memory, so that a cut decides about speed and never about results.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby, pairwise
from math import ceil, prod

import numpy as np
from numpy.typing import NDArray

from stages.errors import InputError

REACH = 3
"""Hops of the longest term in t: a part must have so many slices, or more than two devices meet at a site."""

PAGE = 2 << 20
"""Bytes of physical memory that lie on one device."""

Run = tuple[int, int]
"""A part, and the number of pages in a row that lie on its device."""


@dataclass(frozen=True)
class Partition:
    """`t` slices over `parts` devices; InputError where a part has fewer than `REACH`."""

    parts: int
    t: int

    def __post_init__(self) -> None:
        if self.parts < 1:
            raise InputError(f"a lattice lies on one device or more, got {self.parts}")
        if self.parts > 1 and self.t // self.parts < REACH:
            raise InputError(
                f"{self.t} time slices cannot be spread over {self.parts} GPUs: hops reach {REACH} slices, "
                f"and each GPU must hold so many; take {max(1, self.t // REACH)} GPUs or fewer"
            )

    def cuts(self, extent: int) -> tuple[int, ...]:
        """Begin of each part of an axis that follows t, and the end."""
        slices = (round(part * self.t / self.parts) for part in range(self.parts + 1))
        return tuple(extent * cut // self.t for cut in slices)

    def runs(self, shape: tuple[int, ...], itemsize: int, page: int = PAGE) -> tuple[Run, ...]:
        """Pages of an array in their order in memory, as many in a row as lie on one device.

        A page that a cut falls into goes where more of it belongs. An array with less than a page for each
        device within a leading index lies on the first device.
        """
        axis = max(range(len(shape)), key=shape.__getitem__)
        segment = itemsize * prod(shape[axis:])
        size = itemsize * prod(shape)
        pages = ceil(size / page)
        if self.parts == 1 or segment < self.parts * page:
            return ((0, pages),)
        row = segment // shape[axis]
        ends = [row * cut for cut in self.cuts(shape[axis])[1:]]

        def part_of(number: int) -> int:
            middle = min(number * page + page // 2, size - 1) % segment
            return next(part for part, end in enumerate(ends) if middle < end)

        owners = groupby(part_of(number) for number in range(pages))
        return tuple((part, len(list(members))) for part, members in owners)


@dataclass(frozen=True)
class Share:
    """A device's share of a launch: its grid, and what `share.cuh` tells the kernel."""

    grid: tuple[int, ...]
    rows: tuple[int, int] = (0, 0)
    first_slice: int = 0
    tiles: TileOrder | None = None
    sums: bool = False
    """Whether sums go on over the devices."""

    def numbers(self, part: int, parts: int, totals: int, arrived: int) -> NDArray[np.void]:
        """`Share` of share.cuh; totals and arrived: addresses of what sums over devices need."""
        order = self.tiles
        tiles = (0,) * 6
        if order is not None:
            tiles = (
                *(order.first, order.layers, order.edges),
                *(order.in_chunk, order.reciprocal, order.ratio),
            )
        sums = (part, parts if self.sums else 1)
        return np.array((totals, arrived, *self.rows, self.first_slice, *tiles, *sums), SHARE)


SHARE = np.dtype(
    [
        *((name, np.uint64) for name in ("totals", "arrived")),
        *((name, np.int64) for name in ("first_row", "end_row")),
        ("first_slice", np.uint32),
        *((name, np.uint32) for name in ("first_layer", "layers", "edges")),
        *((name, np.uint32) for name in ("in_chunk", "reciprocal", "ratio")),
        *((name, np.uint32) for name in ("device", "devices")),
    ],
    align=True,
)
"""Layout of `Share` in share.cuh."""


@dataclass(frozen=True)
class RowWork:
    """A kernel on rows (`rows.cuh`), each by itself. per_block: rows of a block, or 0 where blocks go round.

    slices: of a reduction, runs of `rows` rows each with sums of its own; they are shared out whole.
    """

    rows: int
    per_block: int = 0
    slices: int = 1
    sums: bool = False

    def shares(self, partition: Partition, grid: tuple[int, ...]) -> list[Share]:
        if self.slices > 1:
            cuts = partition.cuts(self.slices)
            return [
                Share((grid[0], end - first), (0, self.rows), first_slice=first)
                for first, end in pairwise(cuts)
            ]
        shares = []
        for first, end in pairwise(partition.cuts(self.rows)):
            blocks = ceil((end - first) / self.per_block) if self.per_block else grid[0]
            shares.append(Share((blocks, *grid[1:]), (first, end), sums=self.sums))
        return shares


@dataclass(frozen=True)
class PartialWork:
    """The end of a reduction: each device adds its partial sums, the last to finish adds those of devices."""

    def shares(self, partition: Partition, grid: tuple[int, ...]) -> list[Share]:
        return [Share(grid, sums=True)] * partition.parts


@dataclass(frozen=True)
class TileOrder:
    """Order in which a device visits its tiles (`traversal.cuh`), those that read other devices spread.

    In each chunk of y and z the `edges` layers of tiles at either end of the part are visited in between the
    others, one after every so many: link and memory then work at the same time.
    first: layer of tiles where the part begins. layers: of the part. chunk: tiles of one layer in a chunk.
    """

    first: int
    layers: int
    edges: int
    chunk: int

    @property
    def in_chunk(self) -> int:
        return self.chunk * self.layers

    @property
    def reciprocal(self) -> int:
        """2^32 / tiles of a chunk, rounded down: division is a product and one correction."""
        return min((1 << 32) // self.in_chunk, (1 << 32) - 1)

    @property
    def ratio(self) -> int:
        """2^32 edge tiles / tiles, rounded up: the upper half of its product with i counts those before i."""
        return -((-2 * self.edges * self.chunk << 32) // self.in_chunk)

    def tile(self, step: int) -> tuple[int, int, int]:
        """Chunk, layer of the lattice and place in the layer of a step, as `traversal.cuh` computes them."""
        chunk = step * self.reciprocal >> 32
        chunk += step - chunk * self.in_chunk >= self.in_chunk
        i = step - chunk * self.in_chunk
        before, after = (i * self.ratio) >> 32, ((i + 1) * self.ratio) >> 32
        at_edge = after > before
        layer, place = divmod(before if at_edge else i - before, self.chunk)
        if not at_edge:
            layer += self.edges
        elif layer >= self.edges:
            layer += self.layers - 2 * self.edges
        return chunk, self.first + layer, place


@dataclass(frozen=True)
class TileWork:
    """A kernel that takes a tile of sites, or part of one, in each block and reads neighbours' sites.

    t_tiles: layers of tiles, of `t_sites` slices each. chunk: tiles of one layer in a chunk of the traversal.
    reach: slices that the longest hop goes.
    """

    t_tiles: int
    t_sites: int
    chunk: int
    reach: int = REACH

    def shares(self, partition: Partition, grid: tuple[int, ...]) -> list[Share]:
        cuts = [round(cut / self.t_sites) for cut in partition.cuts(self.t_tiles * self.t_sites)]
        shares = []
        for first, end in pairwise(cuts):
            edges = ceil(self.reach / self.t_sites)
            edges = edges if 2 * edges < end - first else 0
            order = TileOrder(first, end - first, edges, self.chunk)
            shares.append(Share((grid[0] // self.t_tiles * (end - first), *grid[1:]), tiles=order))
        return shares


Work = RowWork | PartialWork | TileWork


@dataclass
class SinceMeeting:
    """Launches since the devices last waited for each other, which say if the next may follow.

    A stencil reads what other devices wrote, and they may overwrite what it still reads. A sum over devices,
    or a launch on the first alone, leaves on one device what all read. Rows stay with their device, as long
    as kernels cut them in one way.
    """

    stencil: bool = False
    result: bool = False
    rows: frozenset[int] = frozenset()

    def asks_to_meet(self, work: Work | None) -> bool:
        if isinstance(work, PartialWork):
            return self.result
        if isinstance(work, RowWork):
            return self.stencil or self.result or not self.rows <= {work.rows * work.slices}
        return self.stencil or self.result or bool(self.rows)

    def enter(self, work: Work | None) -> None:
        if isinstance(work, TileWork):
            self.stencil = True
        elif isinstance(work, RowWork):
            self.rows |= {work.rows * work.slices}
        if work is None or isinstance(work, PartialWork) or (isinstance(work, RowWork) and work.sums):
            self.result = True
