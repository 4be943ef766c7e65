"""A complex matrix product in register tiles: the inner step of the block linear algebra."""

from __future__ import annotations

from typing import Any

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from stages.lqcd.kernels.cpu.vector_ir import REGISTER_BYTES, REGISTERS, ComplexSums, Emitter, literals

TILE_SUMS = 12 if REGISTERS == 32 else 6
"""Complex sums of one register's width in a tile: each takes two registers, and the inputs need a few."""


@intrinsic(prefer_literal=True)
def matrix_product(
    typing: Any,
    left: Any,
    right: Any,
    added: Any,
    added_stride: Any,
    out: Any,
    terms: Any,
    itemsize: Any,
    rows: Any,
    columns: Any,
    left_row: Any,
    left_term: Any,
    pitch: Any,
    conjugate: Any,
) -> Any:
    """out[r] = added[r] + sum_{k < terms} left[r, k] right[k] for row vectors of `columns` complex numbers.

    Takes the addresses left, right, added, the stride of the rows of added, out, and the number of terms;
    then literals: the size of a real, the number of rows and columns, the strides in bytes of `left` by row
    and by term and of `right` and `out` by row, and 1 to conjugate `left`. out may be added, but neither left
    nor right.
    """
    real_bytes, row_count, column_count, row_stride, term_stride, row_bytes, conjugated = literals(
        itemsize, rows, columns, left_row, left_term, pitch, conjugate
    )
    tile_rows, tile_lanes = _tile_shape(column_count, real_bytes)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        left, right, added, added_stride, out, terms = arguments[:6]
        emit = Emitter(builder, real_bytes)

        def tile(row: Any, lane: Any, rows: int, lanes: int) -> None:
            sums = ComplexSums(emit, rows, lanes)
            with cgutils.for_range(builder, terms) as loop:
                vectors = sums.vectors(
                    emit.offset(emit.offset(right, loop.index, row_bytes), lane, real_bytes)
                )
                factors = emit.offset(emit.offset(left, row, row_stride), loop.index, term_stride)
                for r in range(rows):
                    sums.add_product(r, factors, r * row_stride, vectors)
            start = emit.offset(builder.add(added, builder.mul(added_stride, row)), lane, real_bytes)
            result = emit.offset(emit.offset(out, row, row_bytes), lane, real_bytes)
            for r in range(rows):
                firsts, totals = sums.vectors(start), sums.totals(r, bool(conjugated))
                for (place, _), first, total in zip(sums.registers, firsts, totals, strict=True):
                    emit.store(builder.fadd(first, total), result, r * row_bytes + place)
                start = builder.add(start, added_stride)

        for first_row, row_tiles, height in _tiles(row_count, tile_rows):
            for first_lane, lane_tiles, width in _tiles(2 * column_count, tile_lanes):
                with cgutils.for_range(builder, emit.index(row_tiles)) as i:
                    row = emit.offset(emit.index(first_row), i.index, height)
                    with cgutils.for_range(builder, emit.index(lane_tiles)) as j:
                        tile(row, emit.offset(emit.index(first_lane), j.index, width), height, width)
        return context.get_dummy_value()

    constants = (itemsize, rows, columns, left_row, left_term, pitch, conjugate)
    return types.void(left, right, added, added_stride, out, terms, *constants), generate


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
