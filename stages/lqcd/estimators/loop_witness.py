"""Loops seen from outside: combinations of all solves and one contraction, for a check by other kernels."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from stages.base.errors import WrongResultError
from stages.lqcd.dirac.staggered import NormalOperator, StaggeredDslash
from stages.lqcd.kernels import block_blas, slice_products
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.kernels.fields import contiguous
from stages.lqcd.kernels.transfer import copy_to_host
from stages.lqcd.solvers.witness import LINKS, Combination, norm, signs


@dataclass(frozen=True)
class SeenContraction:
    """One column of a contraction: bra on `parity`, hopped on the other one, their current ``[mu, t]``."""

    parity: int
    bra: Array
    hopped: Array
    current: NDArray[np.float64]


@dataclass
class LoopWitness:
    """Witness of a `LoopTrace`: of all its solves and hops, and of one contraction, drawn with `seed`."""

    seed: int
    solves: dict[int, Combination] = field(default_factory=dict)
    """By parity."""
    hops: dict[int, Combination] = field(default_factory=dict)
    """By parity of the solution x; b is D x on the other one."""
    contraction: SeenContraction | None = None
    _drawn: int = 0

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng(self.seed)

    def solved(self, parity: int, b: Array, x: Array, hopped: Array, residual: NDArray[np.float64]) -> None:
        """Take note of a block of solutions x of A x = b, and of D x."""
        for seen in (self.solves, self.hops):
            if parity not in seen:
                seen[parity] = Combination.like(b)
        weights = signs(self._rng, b.shape[-1])
        self.solves[parity].add(b, x, residual, weights)
        self.hops[parity].add(hopped, x, np.zeros(len(residual)), weights)

    def contracted(self, parity: int, bra: Array, hopped: Array, current: NDArray[np.float64]) -> None:
        """Take note of a contraction; in the end each column of each is as likely to be the one kept."""
        columns = bra.shape[-1]
        self._drawn += columns
        place = int(self._rng.integers(self._drawn))
        if place < columns:
            one = slice(place, place + 1)
            columns_kept = contiguous(bra[..., one]), contiguous(hopped[..., one])
            self.contraction = SeenContraction(parity, *columns_kept, current[place].copy())

    def check(self, dslash: StaggeredDslash, links: Array, mass: float) -> None:
        """Raise WrongResultError unless all holds by another D, with links of the current, on the host."""
        for parity, seen in self.solves.items():
            seen.check(NormalOperator(dslash, mass, parity), f"solutions for m = {mass}")
        for parity, seen in self.hops.items():
            self._check_hops(dslash, parity, seen)
        if self.contraction:
            self._check_contraction(dslash, links, self.contraction)

    def _check_hops(self, dslash: StaggeredDslash, parity: int, seen: Combination) -> None:
        x = copy_to_host(seen.x)
        missed = dslash.apply_to(1 - parity, x)
        block_blas.difference(copy_to_host(seen.b), missed, missed)
        if not (distance := norm(missed)) <= (limit := LINKS * norm(x)):
            raise WrongResultError(
                f"D x is another field by other kernels: they differ by {distance:.3g}, "
                f"rounding by {limit:.3g}"
            )

    def _check_contraction(self, dslash: StaggeredDslash, links: Array, seen: SeenContraction) -> None:
        bra, hopped = copy_to_host(seen.bra), copy_to_host(seen.hopped)
        of_parity = contiguous(links[:, seen.parity])
        again = slice_products.one_link_current(of_parity, bra, hopped, dslash.lattice, seen.parity)[0]
        distance, limit = float(np.max(abs(again - seen.current))), LINKS * norm(bra) * norm(hopped)
        if not distance <= limit:
            raise WrongResultError(
                f"a current is another one by other kernels: they differ by {distance:.3g}, "
                f"rounding by {limit:.3g}"
            )
