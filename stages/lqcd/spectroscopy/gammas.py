"""The sixteen Dirac matrices of quark bilinears, by name, and what the names stand for in spectroscopy.

GammaX ... GammaT and Gamma5 as in `stages.lqcd.kernels.gamma`; GammaXGamma5 = gamma_x gamma_5; SigmaXY =
[gamma_x, gamma_y] / 2.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from stages.lqcd.kernels.gamma import GAMMA, GAMMA5

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

CHANNELS = {
    "pion": ("Gamma5",),
    "pion, A_t": ("GammaTGamma5",),
    "rho": ("GammaX", "GammaY", "GammaZ"),
    "rho, T_ti": ("SigmaXT", "SigmaYT", "SigmaZT"),
    "a0": ("Identity",),
    "a1": ("GammaXGamma5", "GammaYGamma5", "GammaZGamma5"),
    "b1": ("SigmaXY", "SigmaXZ", "SigmaYZ"),
}
"""Flavour-non-singlet mesons at rest and the matrices whose correlators are averaged for them. (GammaT is the
charge, whose correlator vanishes or is constant.)"""
