"""Who works on what where several devices share a lattice: counted on virtual devices."""

from itertools import accumulate, chain, pairwise

import numpy as np
import pytest

from stages.base.errors import InputError
from stages.lqcd.kernels.cuda.devices.partition import (
    INNER,
    SHARE,
    OwnWork,
    PartialWork,
    Partition,
    RowWork,
    SinceMeeting,
    SiteWork,
    TileWork,
)

PARTITIONS = [(1, 5), (2, 6), (2, 13), (3, 16), (4, 96), (5, 24), (8, 24), (8, 26)]


def tile(order, step):
    """Chunk, layer of the lattice and place in the layer of a step, as `traversal.cuh` computes them."""
    chunk = step * order.reciprocal >> 32
    chunk += step - chunk * order.in_chunk >= order.in_chunk
    i = step - chunk * order.in_chunk
    late = i >= order.in_chunk - order.mixed
    i -= (order.in_chunk - order.mixed) * late
    if not late and i >= order.mixed:
        layer, place = divmod(i, order.chunk)
        return chunk, order.begin + order.step * layer, place
    before, after = (i * order.ratio) >> 32, ((i + 1) * order.ratio) >> 32
    at_edge = after > before
    layer, place = divmod(before if at_edge else i - before, order.chunk)
    if at_edge:
        layer += (order.layers - order.edges) * late
    else:
        layer += order.layers - order.edges - order.beside if late else order.edges
    return chunk, order.begin + order.step * layer, place


def owners(runs: tuple[tuple[int, int], ...]) -> list[int]:
    """The part of each page."""
    return list(chain.from_iterable([part] * pages for part, pages in runs))


@pytest.mark.parametrize(("parts", "t"), PARTITIONS)
def test_cuts_are_whole_slices_and_differ_by_one(parts: int, t: int) -> None:
    cuts = Partition(parts, t).cuts(3 * 7 * t)
    slices = np.diff(cuts) / 21
    assert cuts[0] == 0 and cuts[-1] == 21 * t
    assert (slices == slices.astype(int)).all()
    assert np.ptp(slices) <= 1


def test_too_many_devices_for_t_say_how_many_fit() -> None:
    assert Partition(4, 12).parts == 4
    with pytest.raises(InputError, match=r"11 time slices .* 4 GPUs.* 3 slices.*take 3 GPUs or fewer"):
        Partition(4, 11)


@pytest.mark.parametrize(("parts", "t"), PARTITIONS)
@pytest.mark.parametrize(
    "shape", [(4800, 3, 5), (4, 2, 4800, 3, 3), (300, 16, 16, 3, 3), (6, 4800, 3, 2)], ids=str
)
def test_pages_lie_with_the_sites_that_fill_them(parts: int, t: int, shape: tuple[int, ...]) -> None:
    partition, page = Partition(parts, t), 4096
    runs, begin = partition.runs(shape, 16, page), partition.begin(shape, 16, page)
    axis = shape.index(max(shape))
    site = np.indices(shape[: axis + 1])[axis].ravel()
    part_of_site = np.searchsorted(partition.cuts(shape[axis])[1:], site, side="right")
    nbytes = 16 * int(np.prod(shape[axis + 1 :]))
    pages = np.arange(-(-(begin + site.size * nbytes) // page))
    middle = (pages * page + page // 2 - begin).clip(0, site.size * nbytes - 1)
    assert owners(runs) == part_of_site[middle // nbytes].tolist()
    assert parts == 1 or all(before[0] != after[0] for before, after in pairwise(runs))


def test_a_cut_between_two_devices_is_between_pages() -> None:
    """Half a page on the wrong device would be read over the link by every site around."""
    partition, page = Partition(2, 96), 4096
    for rows in (96 * 48, 96 * 50):
        shape = rows, 3, 4
        begin, ((_, first), (_, second)) = partition.begin(shape, 8, page), partition.runs(shape, 8, page)
        assert begin == -(rows * 48) % page and first * page == begin + rows * 48
        assert 0 <= second * page - rows * 48 < page
    assert partition.begin((96 * 1024, 4), 8, page) == 0


def test_small_arrays_lie_on_the_first_device() -> None:
    partition = Partition(2, 8)
    assert partition.runs((8, 2, 1000, 3, 3), 16, 1 << 20) == ((0, 3),)
    assert len(partition.runs((16000, 3, 3), 16, 1 << 20)) == 2


@pytest.mark.parametrize(("parts", "t"), PARTITIONS)
@pytest.mark.parametrize(("per_block", "grid"), [(64, 1000), (0, 132)])
def test_rows_are_worked_on_once(parts: int, t: int, per_block: int, grid: int) -> None:
    work = RowWork(3 * 5 * t, per_block, sums=True)
    shares = work.shares(Partition(parts, t), (grid, 3))
    rows = [row for share in shares for row in range(*share.rows)]
    assert rows == list(range(work.rows))
    for share in shares:
        assert share.grid[1:] == (3,) and share.sums
        assert not per_block or share.grid[0] * per_block >= share.rows[1] - share.rows[0]


@pytest.mark.parametrize(("parts", "t"), PARTITIONS)
def test_blocks_that_go_round_have_no_more_rows_than_on_one_device(parts: int, t: int) -> None:
    work, whole = RowWork(1000 * t, sums=True, at_once=40), 480
    for share in work.shares(Partition(parts, t), (whole,)):
        (blocks,), needed = share.grid, whole * (share.rows[1] - share.rows[0]) / work.rows
        assert blocks % 40 == 0 and needed <= blocks < needed + 40


def test_a_device_without_rows_takes_part_in_sums() -> None:
    shares = RowWork(12, sums=True, at_once=40).shares(Partition(8, 24), (480,))
    assert any(first == end for first, end in (share.rows for share in shares))
    assert all(share.grid[0] > 0 for share in shares)


@pytest.mark.parametrize(("parts", "t"), PARTITIONS)
def test_slices_are_shared_out_whole(parts: int, t: int) -> None:
    shares = RowWork(100, slices=t).shares(Partition(parts, t), (7, t))
    ends = list(accumulate(share.grid[1] for share in shares))
    assert [share.first_slice for share in shares] == [0, *ends[:-1]] and ends[-1] == t
    assert all(share.rows == (0, 100) and not share.sums for share in shares)


@pytest.mark.parametrize(("parts", "t"), PARTITIONS)
@pytest.mark.parametrize("t_sites", [1, 2])
@pytest.mark.parametrize(("chunk", "chunks"), [(1, 1), (7, 3), (32, 5)])
@pytest.mark.parametrize("reach", [0, 3])
def test_every_tile_is_visited_once(parts, t, t_sites, chunk, chunks, reach):
    layers, per_tile = t, 2
    work = TileWork(layers, t_sites, chunk, reach)
    shares = work.shares(Partition(parts, t * t_sites), (layers * chunk * chunks * per_tile,))
    tiles = []
    for share in shares:
        assert share.tiles is not None and share.grid[0] % per_tile == 0
        assert share.numbers(0, parts, 0, 0)["ratio"] == share.tiles.ratio
        visited = [tile(share.tiles, step) for step in range(share.grid[0] // per_tile)]
        first, last = share.tiles.first, share.tiles.first + share.tiles.layers
        assert all(first <= layer < last for _, layer, _ in visited)
        tiles += visited
    assert sorted(tiles) == [(c, z, p) for c in range(chunks) for z in range(layers) for p in range(chunk)]


@pytest.mark.parametrize(("parts", "t"), PARTITIONS)
@pytest.mark.parametrize(("segments", "axis", "per_site"), [(1, 0, 1), (2, 1, 2), (2, 0, 2)])
def test_every_site_of_a_coarse_grid_is_worked_on_once(parts, t, segments, axis, per_site):
    sites, grid = 37, (5, 5, 3)
    visited = []
    for share in SiteWork(sites, segments, axis, per_site).shares(Partition(parts, t), grid):
        (first, end), blocks = share.rows, np.arange(share.grid[axis])
        site = blocks // per_site  # as `block_of_share` of share.cuh
        place = share.segment_rows * (site // (end - first)) + first + site % (end - first)
        visited += (place * per_site + blocks % per_site).tolist()
        assert share.grid[1 - axis] == 5 and share.grid[2] == 3
    assert sorted(visited) == list(range(segments * sites * per_site))


def test_numbers_of_a_large_lattice_stay_exact() -> None:
    """128^3 x 256 on two devices: the first and last tiles of some chunks."""
    (share, _) = TileWork(256, 1, 16 * 32 * 8).shares(Partition(2, 256), (1 << 23,))
    order = share.tiles
    assert order is not None
    for chunk in (0, 1, 5, (1 << 22) // order.in_chunk - 1):
        steps = [chunk * order.in_chunk, (chunk + 1) * order.in_chunk - 1]
        assert [tile(order, step)[0] for step in steps] == [chunk, chunk]


@pytest.mark.parametrize(("layers", "reach"), [(24, 3), (48, 3), (16, 1)])
def test_tiles_that_read_other_devices_are_spread_evenly(layers: int, reach: int) -> None:
    chunk = 32
    order = TileWork(2 * layers, 1, chunk, reach).shares(Partition(2, 2 * layers), (2 * layers * chunk,))[1]
    assert order.tiles is not None
    mixed = reach * (1 + INNER) * chunk
    visited = [tile(order.tiles, step)[1] for step in range(layers * chunk)]
    for first, ends in ((-mixed, range(layers, layers + reach)), (0, range(2 * layers - reach, 2 * layers))):
        at_edge = np.array([layer in ends for layer in np.roll(visited, -first)[:mixed]])
        assert abs(np.cumsum(at_edge) - np.arange(1, mixed + 1) / (1 + INNER)).max() <= 1
    middle = visited[mixed : len(visited) - mixed]
    assert middle == sorted(middle, reverse=True)


def test_parts_of_edges_alone_are_visited_in_order() -> None:
    for share, layers in zip(
        TileWork(12, 1, 4).shares(Partition(2, 12), (48,)), (range(6), range(11, 5, -1)), strict=True
    ):
        order = share.tiles
        assert order is not None and order.edges == 0
        assert [tile(order, step)[1] for step in range(24)] == [layer for layer in layers for _ in range(4)]


@pytest.mark.parametrize("parts", [2, 4, 8])
def test_devices_that_share_a_cut_are_at_it_at_the_same_time(parts: int) -> None:
    chunk, t = 8, 20 * parts
    visited = []
    for share in TileWork(t, 1, chunk).shares(Partition(parts, t), (t * chunk,)):
        assert share.tiles is not None
        visited.append([tile(share.tiles, step)[1] for step in range(20 * chunk)])
    for part, other in zip(range(parts), (*range(1, parts), 0), strict=True):
        assert visited[part].index(20 * part + 19) == visited[other].index(20 * other)


def test_a_part_without_a_tile_starts_nothing() -> None:
    """One tile spans all slices: it is the second device's."""
    shares = TileWork(1, 24, 6).shares(Partition(2, 24), (6,))
    assert [share.grid for share in shares] == [(0,), (6,)]
    assert [int(share.numbers(0, 2, 0, 0)["layers"]) for share in shares] == [0, 1]


def test_numbers_of_a_share_are_those_of_the_header() -> None:
    tiles = TileWork(16, 1, 8).shares(Partition(2, 16), (128,))[1]
    numbers = tiles.numbers(1, 2, totals=0x100, arrived=0x200)
    assert SHARE.itemsize == 88 and SHARE.fields is not None and SHARE.fields["first_slice"][1] == 32
    assert (numbers["first_layer"], numbers["layer_step"]) == (15, -1)
    assert (numbers["layers"], numbers["edges"], numbers["in_chunk"]) == (8, 3, 64)
    assert (numbers["device"], numbers["devices"]) == (1, 1)
    sums = PartialWork().shares(Partition(2, 16), (7,))[1].numbers(1, 2, 0x100, 0x200)
    assert (sums["totals"], sums["arrived"], sums["devices"]) == (0x100, 0x200, 2)


WHOLE_TILES = Partition(2, 16)
"""A lattice that is cut between tiles of `TileWork(16, 1, 8)`, and of two slices."""


def test_devices_meet_around_stencils_and_after_sums_alone() -> None:
    """The launches of an iteration of CG: x and p, D, D with partial sums, their sum, r with its norms."""
    rows = 300
    stencil = TileWork(16, 1, 8)
    step = [RowWork(rows, 64), stencil, stencil, PartialWork(), RowWork(rows, sums=True)]
    since, met = SinceMeeting(WHOLE_TILES), []
    for work in [*step, step[0]]:
        met.append(since.asks_to_meet(work))
        since = SinceMeeting(WHOLE_TILES) if met[-1] else since
        since.enter(work)
    assert met == [False, True, True, False, True, True]


def test_who_reads_alone_does_not_wait_for_a_stencil() -> None:
    """An iteration of block CGrQ: D, sums over rows, coefficients on the first device; each its own copy."""
    rows = 300
    since, met = SinceMeeting(WHOLE_TILES), []
    for work in (
        TileWork(16, 1, 8),
        RowWork(rows, reads=True),
        PartialWork(),
        None,
        OwnWork(),
        RowWork(rows),
    ):
        met.append(since.asks_to_meet(work))
        since = SinceMeeting(WHOLE_TILES) if met[-1] else since
        since.enter(work)
    assert met == [False, False, False, True, True, False]
    assert since.asks_to_meet(TileWork(16, 1, 8)) and since.asks_to_meet(None)


def test_what_devices_copy_is_not_overwritten_before() -> None:
    since = SinceMeeting(WHOLE_TILES)
    since.enter(OwnWork())
    assert since.asks_to_meet(None) and not since.asks_to_meet(PartialWork())
    assert not since.asks_to_meet(RowWork(300)) and since.asks_to_meet(RowWork(300, clears=True))


@pytest.mark.parametrize("before", [None, PartialWork(), RowWork(300, sums=True)], ids=str)
def test_a_result_on_one_device_is_waited_for(before: object) -> None:
    since = SinceMeeting(WHOLE_TILES)
    since.enter(before)  # type: ignore[arg-type]
    assert all(since.asks_to_meet(work) for work in (None, PartialWork(), RowWork(300), TileWork(16, 1, 8)))


def test_rows_that_are_cut_in_another_way_are_waited_for() -> None:
    since = SinceMeeting(WHOLE_TILES)
    since.enter(RowWork(300))
    assert not since.asks_to_meet(RowWork(300)) and not since.asks_to_meet(PartialWork())
    assert since.asks_to_meet(RowWork(600)) and since.asks_to_meet(None)
    assert since.asks_to_meet(RowWork(300, segments=2)) and since.asks_to_meet(RowWork(300, slices=2))


@pytest.mark.parametrize(("parts", "meets"), [(2, False), (3, True)])
def test_rows_of_tiles_across_a_cut_are_waited_for(parts: int, meets: bool) -> None:
    """Who reads alone: three parts of 16 slices begin at 5 and 11, tiles at every fourth."""
    since = SinceMeeting(Partition(parts, 16))
    since.enter(TileWork(4, 4, 8))
    assert since.asks_to_meet(RowWork(300, reads=True)) == meets
    assert not since.asks_to_meet(PartialWork())


def test_slices_by_themselves_are_as_rows() -> None:
    """The Laplacian's products wait for no other device, those of a Dirac operator for all of them."""
    alone, hopping = TileWork(16, 1, 8, reach=0), TileWork(16, 1, 8, reach=1)
    since = SinceMeeting(WHOLE_TILES)
    since.enter(alone)
    assert not since.asks_to_meet(alone)
    assert since.asks_to_meet(hopping) and since.asks_to_meet(RowWork(300)) and since.asks_to_meet(None)
    since = SinceMeeting(WHOLE_TILES)
    since.enter(hopping)
    assert since.asks_to_meet(alone) and since.asks_to_meet(hopping)
