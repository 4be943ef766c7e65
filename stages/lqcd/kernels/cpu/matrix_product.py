"""A complex matrix product in register tiles: the inner step of the block linear algebra."""

from __future__ import annotations

from numba.core import cgutils

from stages.lqcd.kernels.cpu.vector_ir import (
    REGISTER_BYTES,
    REGISTERS,
    Builder,
    ComplexSums,
    Emitter,
    Value,
    emitted,
)

TILE_SUMS = 12 if REGISTERS == 32 else 6
"""Complex sums of one register's width in a tile: each takes two registers, and the inputs need a few."""


@emitted
def matrix_product(
    builder: Builder,
    left: Value, right: Value, added: Value, added_stride: Value, out: Value, terms: Value,
    itemsize: int, rows: int, columns: int, left_row: int, left_term: int, pitch: int, conjugate: int,
) -> None:  # fmt: skip
    """out[r] = added[r] + sum_{k < terms} left[r, k] right[k] for row vectors of `columns` complex numbers.

    Takes the addresses left, right, added, the stride of the rows of added, out, and the number of terms;
    then literals: the size of a real, the number of rows and columns, the strides in bytes of `left` by row
    and by term and of `right` and `out` by row, and 1 to conjugate `left`. out may be added, but neither left
    nor right.
    """
    tile_rows, tile_lanes = _tile_shape(columns, itemsize)
    emit = Emitter(builder, itemsize)

    def tile(row: Value, lane: Value, rows: int, lanes: int) -> None:
        sums = ComplexSums(emit, rows, lanes)
        with cgutils.for_range(builder, terms) as loop:
            vectors = sums.vectors(emit.offset(emit.offset(right, loop.index, pitch), lane, itemsize))
            factors = emit.offset(emit.offset(left, row, left_row), loop.index, left_term)
            for r in range(rows):
                sums.add_product(r, factors, r * left_row, vectors)
        start = emit.offset(builder.add(added, builder.mul(added_stride, row)), lane, itemsize)
        result = emit.offset(emit.offset(out, row, pitch), lane, itemsize)
        for r in range(rows):
            firsts, totals = sums.vectors(start), sums.totals(r, bool(conjugate))
            for (place, _), first, total in zip(sums.registers, firsts, totals, strict=True):
                emit.store(builder.fadd(first, total), result, r * pitch + place)
            start = builder.add(start, added_stride)

    for first_row, row_tiles, height in _tiles(rows, tile_rows):
        for first_lane, lane_tiles, width in _tiles(2 * columns, tile_lanes):
            with cgutils.for_range(builder, emit.index(row_tiles)) as i:
                row = emit.offset(emit.index(first_row), i.index, height)
                with cgutils.for_range(builder, emit.index(lane_tiles)) as j:
                    tile(row, emit.offset(emit.index(first_lane), j.index, width), height, width)


def _tile_shape(columns: int, itemsize: int) -> tuple[int, int]:
    """(rows, lanes) of a tile: at most two registers wide, and as high as the register file allows."""
    lanes = min(2 * columns, 2 * REGISTER_BYTES // itemsize)
    return TILE_SUMS // -(-lanes * itemsize // REGISTER_BYTES), lanes


def _tiles(extent: int, size: int) -> list[tuple[int, int, int]]:
    """`extent` cut into tiles, as (first, number of tiles, size): the equal ones, then the rest, if any."""
    count, remainder = divmod(extent, size)
    return [
        (first, n, width) for first, n, width in ((0, count, size), (count * size, 1, remainder)) if n * width
    ]
