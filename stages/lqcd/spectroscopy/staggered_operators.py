"""Staggered meson operators by spin and taste: phases, displacements, and the multiplets that MILC names.

An operator of spin S and taste T on a time slice is psibar(x) phi(x) (D psi)(x), with D the mean over all
orders of symmetric covariant shifts (1/2) [U_k(x) psi(x + k) + U_k(x - k)^dag psi(x - k)] along the
directions in which S and T differ (none: a local operator), and

    phi(x) = (1/4) tr [ Omega(x)^dag gamma_S Omega(x + S + T) gamma_T^dag ],
    Omega(x) = gamma_t^t gamma_x^x gamma_y^y gamma_z^z,

which belongs to the phases of D that MILC has: eta_t = 1, eta_x = (-1)^t, eta_y = (-1)^(t+x), eta_z =
(-1)^(t+x+y) (`stages.lqcd.gauge.phases`). These are the operators of MILC's `general_spin_taste_op`, up to a
sign of the whole operator, which correlators do not see (Golterman, Nucl. Phys. B273 (1986) 663). Each
couples to a second state, of spin gamma_t gamma_5 S and taste gamma_t gamma_5 T, whose correlator oscillates
with -(-1)^t.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product

import numpy as np
from numpy.typing import NDArray

from stages.base.errors import InputError, suggestion
from stages.lqcd.kernels.gamma import GAMMA
from stages.lqcd.lattice.geometry import T, X, Y, Z
from stages.lqcd.spectroscopy.gammas import turned_product
from stages.lqcd.spectroscopy.little_group import Algebra, Rotation

GAMMAS: dict[str, frozenset[int]] = {
    "G1": frozenset(),
    "GX": frozenset({X}),
    "GY": frozenset({Y}),
    "GZ": frozenset({Z}),
    "GT": frozenset({T}),
    "GXY": frozenset({X, Y}),
    "GYZ": frozenset({Y, Z}),
    "GZX": frozenset({Z, X}),
    "GXT": frozenset({X, T}),
    "GYT": frozenset({Y, T}),
    "GZT": frozenset({Z, T}),
    "G5X": frozenset({Y, Z, T}),
    "G5Y": frozenset({X, Z, T}),
    "G5Z": frozenset({X, Y, T}),
    "G5T": frozenset({X, Y, Z}),
    "G5": frozenset({X, Y, Z, T}),
}
"""Directions whose gamma matrices make a product, by MILC's names."""

MULTIPLETS: dict[str, tuple[str, ...]] = {
    "pion5": ("G5-G5",),
    "pion05": ("G5T-G5T",),
    "pioni5": ("G5-G5X", "G5-G5Y", "G5-G5Z"),
    "pionij": ("G5T-GYZ", "G5T-GZX", "G5T-GXY"),
    "pioni": ("G5T-GX", "G5T-GY", "G5T-GZ"),
    "pioni0": ("G5-GXT", "G5-GYT", "G5-GZT"),
    "pions": ("G5T-G1",),
    "pion0": ("G5-GT",),
    "rhoi": ("GX-GX", "GY-GY", "GZ-GZ"),
    "rhoi0": ("GXT-GXT", "GYT-GYT", "GZT-GZT"),
    "rhois": ("GX-G1", "GY-G1", "GZ-G1"),
    "rho0": ("GXT-GT", "GYT-GT", "GZT-GT"),
}
"""Operators, spin-taste, whose correlators are averaged, by MILC's names of the mesons: pion5, pion05, rhoi
and rhoi0 are local, pioni5, pionij, rhois and rho0 have one link, pioni and pioni0 two, pions and pion0
three."""


@dataclass(frozen=True)
class SpinTaste:
    """A staggered meson operator; spin and taste are names of `GAMMAS`."""

    spin: str
    taste: str

    @classmethod
    def parse(cls, label: str) -> SpinTaste:
        """The operator that `label` names, such as GX-G1. Raises InputError."""
        spin, _, taste = label.partition("-")
        for name in (spin, taste):
            if name not in GAMMAS:
                raise InputError(
                    f"a staggered operator is SPIN-TASTE, such as GX-G1, got {label!r}"
                    f"{suggestion(name, GAMMAS)}"
                )
        operator = cls(spin, taste)
        if T in operator.difference:
            raise InputError(
                f"{label} is displaced in time, and has no correlator between time slices: take a spin and a "
                "taste that both have gamma_t, or neither"
            )
        return operator

    @property
    def difference(self) -> frozenset[int]:
        """Directions in which spin and taste differ."""
        return GAMMAS[self.spin] ^ GAMMAS[self.taste]

    @property
    def shifts(self) -> tuple[int, ...]:
        """Directions x, y, z of the links, at most one each; none of a local operator."""
        return tuple(sorted(self.difference))

    def phases(self, coordinates: NDArray[np.integer]) -> NDArray[np.float64]:
        """Signs (-1)^(x+y+z+t) phi(x) at coordinates ``[..., 4]``, float64 ``[...]``."""
        corners = np.moveaxis(np.mod(coordinates, 2), -1, 0)
        return _corner_phases(self)[tuple(corners)]


def operators_of(multiplets: Sequence[str]) -> tuple[str, ...]:
    """Labels of all operators of multiplets, in their order."""
    return tuple(label for name in multiplets for label in MULTIPLETS[name])


def terms_of(text: str) -> dict[str, int]:
    """Factors by label of an operator or of a sum such as GX-G1 - 2 GY-G1."""
    signed = re.findall(r"([+-]?) *(?:(\d+) +)?(\w+-\w+)", text)
    return {label: int(f"{sign}{number or 1}") for sign, number, label in signed}


def _turned(text: str, rotation: Rotation) -> dict[str, int]:
    """Factors by label of a rotated operator: spin and taste turn together."""
    terms = {}
    for label, factor in terms_of(text).items():
        parts = [turned_product(sorted(GAMMAS[name]), rotation) for name in label.split("-")]
        spin, taste = (_NAMES[frozenset(directions)] for _, directions in parts)
        terms[f"{spin}-{taste}"] = factor * parts[0][0] * parts[1][0]
    return terms


def _combined(factors: Sequence[int], texts: Sequence[str]) -> str:
    sizes = ["" if abs(factor) == 1 else f"{abs(factor)} " for factor in factors]
    parts = zip(factors, sizes, texts, strict=True)
    return " ".join(f"{'-' if n < 0 else '+'} {size}{text}" for n, size, text in parts).removeprefix("+ ")


_NAMES = {directions: name for name, directions in GAMMAS.items()}
SPIN_TASTES = Algebra(_turned, _combined, lambda text: SpinTaste.parse(text).taste)
"""Rules of these operators for `stages.lqcd.spectroscopy.little_group`. Different tastes do not mix."""


@cache
def _corner_phases(operator: SpinTaste) -> NDArray[np.float64]:
    """Epsilon phi on the 16 corners of a hypercube, ``[x, y, z, t]``."""
    spin, taste = (_product(GAMMAS[name]) for name in (operator.spin, operator.taste))
    phases = np.empty((2, 2, 2, 2))
    for corner in product((0, 1), repeat=4):
        ahead = [(n + (mu in operator.difference)) % 2 for mu, n in enumerate(corner)]
        start, end = (_omega(place) for place in (corner, ahead))
        trace = np.trace(start.conj().T @ spin @ end @ taste.conj().T) / 4
        phases[corner] = (-1) ** sum(corner) * round(trace.real)
    return phases


def _omega(corner: Sequence[int]) -> NDArray[np.complex128]:
    """Omega(x) = gamma_t^t gamma_x^x gamma_y^y gamma_z^z."""
    return _product([mu for mu in (T, X, Y, Z) if corner[mu]])


def _product(directions: Sequence[int] | frozenset[int]) -> NDArray[np.complex128]:
    matrix = np.eye(4, dtype=complex)
    for mu in sorted(directions) if isinstance(directions, frozenset) else directions:
        matrix = matrix @ GAMMA[mu]
    return matrix
