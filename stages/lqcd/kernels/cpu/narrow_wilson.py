"""Wilson dslash of one right-hand side in single precision: two spins of a colour in a register.

Vectors over right-hand sides would have the two reals of a complex number. The half spinor of a hop has two
spins, to which a link does the same, and so have both chiralities of the sum; clover matrices are multiplied
with both chiralities at once. The sums are the same, in the same order, as those of many right-hand sides: so
are the bits.
"""

from __future__ import annotations

from collections.abc import Iterator

from llvmlite import ir

from stages.lqcd.kernels.clover import MATRIX_REALS
from stages.lqcd.kernels.cpu.spinor_ir import (
    CHIRAL,
    NO_CLOVER,
    ON_HOP,
    HopSums,
    clover_sums,
    phases,
)
from stages.lqcd.kernels.cpu.vector_ir import Builder, Emitter, Value, emitted
from stages.lqcd.kernels.gamma import COLOURS, COMPONENTS

LANES = 4
"""Reals of a register: of two complex numbers."""


class SpinPairHopSums(HopSums):
    """The sum over directions of one right-hand side; each register has a colour of two spins.

    The lower spins are kept in the order in which the last hop has added to them.
    """

    def __init__(self, emit: Emitter, sign: Value) -> None:
        super().__init__(emit, 2 * emit.itemsize, LANES, sign)
        self._columns: dict[bool, list[int]] = {}

    def add(self, direction: int, links: Value, neighbour: Value) -> None:
        mu, backward = divmod(direction, 2)
        columns, factors = zip(*phases(mu), strict=True)
        imaginary = bool(factors[0].imag)
        opposite = [phase.conjugate() * (1 if backward else -1) for phase in factors]
        signs = self._by_spin([phase.real + phase.imag for phase in opposite])
        lower = self._in_order(imaginary, list(columns))
        carried = self._carried(mu, bool(backward), direction, links, neighbour)
        for colour, hop in enumerate(carried[:COLOURS]):
            self._upper[colour] = self._sum(self._upper[colour], hop, 1)
            lower[colour] = self.emit.added_product(hop, signs, lower[colour])

    def totals(self) -> list[Value]:
        """Three colours of the upper spins, then of the lower ones."""
        for imaginary in list(self._columns):
            self._in_order(imaginary, [0, 1])
        totals = super().totals()
        return totals[:COLOURS] + totals[CHIRAL : CHIRAL + COLOURS]

    def _in_order(self, imaginary: bool, columns: list[int]) -> list[Value]:
        """Lower sums whose lanes are those of the columns."""
        lower = self._lower[imaginary]
        if self._columns.setdefault(imaginary, columns) != columns:
            lower[:COLOURS] = map(self.emit.halves_exchanged, lower[:COLOURS])
            self._columns[imaginary] = columns
        return lower

    def _halves(self, mu: int, backward: bool, neighbour: Value, colour: int) -> list[Value]:
        emit, builder = self.emit, self.emit.builder
        columns, factors = zip(*phases(mu), strict=True)
        upper = self._spins(neighbour, [colour, COLOURS + colour])
        lower = self._spins(neighbour, [CHIRAL + COLOURS * column + colour for column in columns])
        factor = self._by_spin([-(phase.real + phase.imag) for phase in factors])
        if factors[0].imag:
            lower, factor = emit.swapped(lower), builder.fmul(self.sign_i, factor)
        else:
            factor = builder.fmul(self.sign, factor)
        return [emit.fma(factor, lower, builder.fneg(upper) if backward else upper)]

    def _spins(self, spinor: Value, components: list[int]) -> Value:
        return load_pair(self.emit, spinor, *components)

    def _by_spin(self, numbers: list[float]) -> Value:
        return ir.Constant(self.sign.type, [numbers[2 * lane // LANES] for lane in range(LANES)])


def load_pair(emit: Emitter, spinor: Value, first: int, second: int) -> Value:
    """Two components of a spinor of one right-hand side in a register."""
    return emit.joined(*(emit.load(spinor, at * 2 * emit.itemsize, LANES // 2) for at in (first, second)))


def store_pair(emit: Emitter, vector: Value, spinor: Value, first: int, second: int) -> None:
    for half, at in enumerate((first, second)):
        lanes = emit.lanes_of(vector, half * LANES // 2, LANES // 2)
        emit.store(lanes, spinor, at * 2 * emit.itemsize)


def factors_by_chirality(emit: Emitter, matrices: Value, kind: int) -> Iterator[Value]:
    """The numbers of two clover matrices at an address, that of the first and that of the second."""
    for first in range(0, MATRIX_REALS[kind], LANES):
        one, other = (
            emit.load(matrices, (first + chirality * MATRIX_REALS[kind]) * emit.itemsize, LANES)
            for chirality in range(2)
        )
        for lane in range(LANES):
            yield emit.twice(one, other, lane)


@emitted
def narrow_site(
    builder: Builder,
    u: Value, n: Value, matrices: Value, x: Value, diagonal: Value, out: Value, sign: Value, a: Value,
    b: Value,
    itemsize: int, first: int, stop: int, place: int, kind: int,
) -> None:  # fmt: skip
    """``out = a C' diagonal + b C sum_d hop_d`` for one site and one right-hand side.

    Takes addresses, then sign, a and b, then literal constants; `place` is what `matrices`, of this
    kind, multiply.
    """
    spinor_bytes = 2 * COMPONENTS * itemsize
    emit = Emitter(builder, itemsize)
    sums = SpinPairHopSums(emit, sign)
    for d in range(first, stop):
        sums.add(d, u, emit.offset(x, emit.load_index(n, 4 * d), spinor_bytes))
    a, b = (emit.splat(emit.rounded(factor), LANES) for factor in (a, b))
    totals = [builder.fmul(b, total) for total in sums.totals()]
    hops = [
        emit.pair(totals[colour], totals[COLOURS + colour], spin)
        for spin in range(2)
        for colour in range(COLOURS)
    ]
    added = [builder.fmul(a, load_pair(emit, diagonal, i, CHIRAL + i)) for i in range(CHIRAL)]
    if place == NO_CLOVER:
        results = [builder.fadd(*pair) for pair in zip(hops, added, strict=True)]
    else:
        operands = (hops, added) if place == ON_HOP else (added, hops)
        results = clover_sums(emit, factors_by_chirality(emit, matrices, kind), *operands, kind)
    for i, result in enumerate(results):
        store_pair(emit, result, out, i, CHIRAL + i)
