"""The sixteen Dirac matrices of quark bilinears, by name, and what the names stand for in spectroscopy.

GammaX ... GammaT and Gamma5 as in `stages.lqcd.kernels.gamma`; GammaXGamma5 = gamma_x gamma_5; SigmaXY =
[gamma_x, gamma_y] / 2.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from stages.base.errors import InputError
from stages.lqcd.kernels.gamma import GAMMA, GAMMA5
from stages.lqcd.spectroscopy.little_group import Rotation

_LETTERS = "XYZT"

DIRAC: dict[str, NDArray[np.complex128]] = {
    "Identity": np.eye(4, dtype=complex),
    "Gamma5": GAMMA5,
    **{f"Gamma{letter}": GAMMA[mu] for mu, letter in enumerate(_LETTERS)},
    **{f"Gamma{letter}Gamma5": GAMMA[mu] @ GAMMA5 for mu, letter in enumerate(_LETTERS)},
    **{f"Sigma{_LETTERS[mu]}{_LETTERS[nu]}": GAMMA[mu] @ GAMMA[nu] for mu, nu in combinations(range(4), 2)},
}
"""Name: 4 x 4 matrix in the DeGrand-Rossi basis."""

NAMES = tuple(DIRAC)

_FACTORS: dict[str, tuple[int, ...]] = {
    "Identity": (),
    "Gamma5": (0, 1, 2, 3),
    **{f"Gamma{letter}": (mu,) for mu, letter in enumerate(_LETTERS)},
    **{f"Gamma{letter}Gamma5": (mu, 0, 1, 2, 3) for mu, letter in enumerate(_LETTERS)},
    **{f"Sigma{_LETTERS[mu]}{_LETTERS[nu]}": (mu, nu) for mu, nu in combinations(range(4), 2)},
}
"""Directions of the gamma matrices whose product each is."""

CHANNELS = {
    "pion": ("Gamma5",),
    "pion, A_t": ("GammaTGamma5",),
    "rho": ("GammaX", "GammaY", "GammaZ"),
    "rho, T_ti": ("SigmaXT", "SigmaYT", "SigmaZT"),
    "a0": ("Identity",),
    "a1": ("GammaXGamma5", "GammaYGamma5", "GammaZGamma5"),
    "b1": ("SigmaXY", "SigmaXZ", "SigmaYZ"),
}
"""Flavour-non-singlet mesons and the matrices whose correlators are averaged for them at rest. At a momentum
they are split by `stages.lqcd.spectroscopy.little_group`. (GammaT is the charge, whose correlator vanishes or
is constant.)"""


def vertices(name: str) -> tuple[NDArray[np.complex128], NDArray[np.complex128]]:
    """gamma5 G and Gbar gamma5 of a Dirac matrix. Raises InputError for an unknown one."""
    if name not in DIRAC:
        raise InputError(f"a Dirac matrix is one of {', '.join(DIRAC)}, got {name!r}")
    gamma, gamma_t = DIRAC[name], GAMMA[3]
    return GAMMA5 @ gamma, gamma_t @ gamma.conj().T @ gamma_t @ GAMMA5


def turned_matrix(name: str, rotation: Rotation) -> tuple[int, str]:
    """A Dirac matrix rotated or reflected in space, as a sign and the name of another one."""
    sign, product = turned_product(_FACTORS[name], rotation)
    for other, factors in _FACTORS.items():
        own, same = turned_product(factors, ((0, 1), (1, 1), (2, 1)))
        if same == product:
            return sign * own, other
    raise AssertionError("products of gamma matrices are the sixteen")


def turned_product(directions: Iterable[int], rotation: Rotation) -> tuple[int, tuple[int, ...]]:
    """A product of gamma matrices rotated in space: its sign, and its directions in order, each once."""
    image = [rotation[mu] if mu < 3 else (mu, 1) for mu in directions]
    sign, ordered = 1, [axis for axis, _ in image]
    for _, each in image:
        sign *= each
    for end in range(len(ordered), 1, -1):
        for k in range(end - 1):
            if ordered[k] > ordered[k + 1]:
                ordered[k : k + 2] = ordered[k + 1], ordered[k]
                sign = -sign
    return sign, tuple(mu for mu in sorted(set(ordered)) if ordered.count(mu) % 2)
