"""Spinor algebra on vector registers: hops of the Wilson dslash and products with clover matrices.

A register holds a run of right-hand sides of one of the 12 components of a site, re, im, re, im, ... In the
DeGrand-Rossi basis every gamma_mu is [[0, B], [B^dag, 0]] with one phase (1, -1, i or -i) in each row of B:
(1 - s gamma_mu) v = (h, -s B^dag h) with the half spinor h = v_upper - s B v_lower, and only h is multiplied
by the link.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from llvmlite import ir

from stages.lqcd.kernels.clover import GENERAL, HERMITIAN, MATRIX_REALS
from stages.lqcd.kernels.cpu.vector_ir import Emitter, Value
from stages.lqcd.kernels.gamma import COLOURS, COMPONENTS, GAMMA

CHIRAL = COMPONENTS // 2
"""Components of one chirality, and of a half spinor."""

NO_CLOVER, ON_HOP, ON_DIAGONAL = range(3)
"""What the clover matrix of a dslash multiplies."""


class HopSums:
    """Sum over directions of projector times link times neighbour, for `lanes` reals of each component.

    sign: float64 scalar, that of the dslash. The lower components are kept apart by the phase that they
    still lack: times 1 and times i.
    """

    def __init__(self, emit: Emitter, row_bytes: int, lanes: int, sign: Value) -> None:
        self.emit = emit
        self.row_bytes = row_bytes
        self.lanes = lanes
        self.sign = emit.splat(emit.rounded(sign), lanes)
        self.sign_i = emit.builder.fmul(self.sign, emit.times_i_signs(lanes))
        self._upper: list[Value] = [None] * CHIRAL
        self._lower: dict[bool, list[Value]] = {False: [None] * CHIRAL, True: [None] * CHIRAL}

    def add(self, direction: int, links: Value, neighbour: Value) -> None:
        """Adds one hop: addresses of the site's links ``[8, 3, 3]`` and of the neighbour's spinor."""
        mu, backward = divmod(direction, 2)
        carried = self._carried(mu, bool(backward), direction, links, neighbour)
        for spin, (column, phase) in enumerate(phases(mu)):
            opposite = phase.conjugate() * (1 if backward else -1)
            lower = self._lower[bool(opposite.imag)]
            for colour in range(COLOURS):
                hop = carried[COLOURS * spin + colour]
                at, to = COLOURS * spin + colour, COLOURS * column + colour
                self._upper[at] = self._sum(self._upper[at], hop, 1)
                lower[to] = self._sum(lower[to], hop, opposite.real + opposite.imag)

    def totals(self) -> list[Value]:
        """The twelve finished components."""
        zero = ir.Constant(self.sign.type, [0.0] * self.lanes)
        lower = []
        for real, imaginary in zip(self._lower[False], self._lower[True], strict=True):
            total = zero if real is None else self.emit.builder.fmul(self.sign, real)
            if imaginary is not None:
                total = self.emit.fma(self.sign_i, self.emit.swapped(imaginary), total)
            lower.append(total)
        return self._upper + lower

    def _carried(
        self, mu: int, backward: bool, direction: int, links: Value, neighbour: Value
    ) -> list[Value]:
        """Link times half spinor. Backward links hold -U^dag, their half spinors get the sign back."""
        emit, itemsize = self.emit, self.emit.itemsize
        carried: list[Value] = [None] * CHIRAL
        for j in range(COLOURS):
            halves = self._halves(mu, backward, neighbour, j)
            rotated = [emit.times_i(half) for half in halves]
            for i in range(COLOURS):
                place = ((direction * COLOURS + i) * COLOURS + j) * 2 * itemsize
                for part, vectors in ((0, halves), (itemsize, rotated)):
                    factor = emit.splat(emit.load_real(links, place + part), self.lanes)
                    for spin, vector in enumerate(vectors):
                        at = COLOURS * spin + i
                        carried[at] = emit.added_product(factor, vector, carried[at])
        return carried

    def _halves(self, mu: int, backward: bool, neighbour: Value, colour: int) -> list[Value]:
        """v_upper - s B v_lower of each spin and one colour; backward -(v_upper + s B v_lower)."""
        emit, negative = self.emit, self.emit.builder.fneg
        halves = []
        for spin, (column, phase) in enumerate(phases(mu)):
            upper = emit.load(neighbour, (COLOURS * spin + colour) * self.row_bytes, self.lanes)
            lower = emit.load(neighbour, (CHIRAL + COLOURS * column + colour) * self.row_bytes, self.lanes)
            if phase.imag:
                lower = emit.swapped(lower)
            factor = self.sign_i if phase.imag else self.sign
            if phase.real + phase.imag > 0:
                factor = negative(factor)
            halves.append(emit.fma(factor, lower, negative(upper) if backward else upper))
        return halves

    def _sum(self, total: Value, hop: Value, sign: float) -> Value:
        builder = self.emit.builder
        if total is None:
            return hop if sign > 0 else builder.fneg(hop)
        return builder.fadd(total, hop) if sign > 0 else builder.fsub(total, hop)


def phases(mu: int) -> list[tuple[int, complex]]:
    """(column, phase) of the element that is not zero in each row of B of gamma_mu."""
    block = GAMMA[mu][:2, 2:]
    return [(int(abs(row).argmax()), complex(row[abs(row).argmax()])) for row in block]


def clover_factors(emit: Emitter, matrix: Value, lanes: int, kind: int) -> Iterator[Value]:
    """The numbers of a matrix of this kind at an address, each in all lanes."""
    for number in range(MATRIX_REALS[kind]):
        yield emit.splat(emit.load_real(matrix, number * emit.itemsize), lanes)


def clover_sums(
    emit: Emitter, factors: Iterator[Value], vectors: Sequence[Value], sums: Sequence[Value], kind: int
) -> list[Value]:
    """Sums + C vectors of one chirality; factors: the numbers of C, of this kind, in vectors."""
    totals, rotated = list(sums), [emit.times_i(vector) for vector in vectors]
    for row, column in product(range(CHIRAL), repeat=2) if kind != HERMITIAN else ():
        i, j = (row, column) if kind == GENERAL else (column, row)
        re, im = next(factors), next(factors)
        totals[i] = emit.added_product(re, vectors[j], totals[i])
        totals[i] = emit.fma(im if kind == GENERAL else emit.builder.fneg(im), rotated[j], totals[i])
    if kind != HERMITIAN:
        return totals
    for i in range(CHIRAL):
        totals[i] = emit.added_product(next(factors), vectors[i], totals[i])
    for i in range(CHIRAL):
        for j in range(i + 1, CHIRAL):
            re, im = next(factors), next(factors)
            totals[i] = emit.fma(re, vectors[j], totals[i])
            totals[i] = emit.fma(im, rotated[j], totals[i])
            totals[j] = emit.fma(re, vectors[i], totals[j])
            totals[j] = emit.fma(emit.builder.fneg(im), rotated[i], totals[j])
    return totals
