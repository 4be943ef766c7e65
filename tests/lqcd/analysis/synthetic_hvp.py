"""Vector correlators in closed form, and the reference numbers of `tests/reference/amu.json`."""

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import scipy.special as special
from numpy.typing import NDArray

Array = NDArray[np.float64]
REFERENCE = Path(__file__).parents[2] / "reference" / "amu.json"


@cache
def reference() -> dict[str, Any]:
    """All numbers, as strings with their digits."""
    return json.loads(REFERENCE.read_text())


def periodic(extent: int, states: Sequence[tuple[float, float]]) -> Array:
    """sum A [exp(-E n) + exp(-E (N - n))] of pairs A, E, ``[N]``."""
    n = np.arange(extent)
    return sum(a * (np.exp(-e * n) + np.exp(-e * (extent - n))) for a, e in states)


def synthetic() -> tuple[dict[str, Any], Array, Array]:
    """The case with oscillating partners: its numbers, its correlator, and that without the partners."""
    case = reference()["E synthetic"][0]
    smooth, partners = (
        periodic(case["N"], [(float(a), float(e)) for a, e in case[key]])
        for key in ("states [A, E]", "oscillating [B, M]")
    )
    return case, smooth - (-1.0) ** np.arange(case["N"]) * partners, smooth


def kernel_closed_form(x: Array) -> Array:
    """m_mu^2 K~ of x = m_mu t in Bessel K and Struve L (arXiv:2004.03935, eq. 2.10), with y = 2 x.

        2 pi^2 [x^2 + 4/x^2 + 8 ln x + 8 gamma_E - 2 - 8 K_1(y)/x - 2 y K_1(y)
                - pi y^2 (K_0(y) L_{-1}(y) + K_1(y) L_0(y))],

    arXiv:1705.01775, appendix B, with the Meijer function written out. It has 12 digits from x = 0.75, below
    which 72 / x^6 of them are lost, to 300, where L_0 overflows.
    """
    y = 2 * x
    k0, k1 = special.k0(y), special.k1(y)
    integral = k0 * special.modstruve(-1, y) + k1 * special.modstruve(0, y)
    smooth = x**2 + 4 / x**2 + 8 * np.log(x) + 8 * np.euler_gamma - 2
    return 2 * np.pi**2 * (smooth - 8 * k1 / x - 2 * y * k1 - np.pi * y**2 * integral)


def free_quark_correlator(t: Array, mass: float, charges: float = 1.0) -> Array:
    """G(t) in GeV^3 of a free quark or lepton loop, N_c sum q^2 = charges; t > 0 in 1/GeV, any shape.

    (1 / 12 pi^2) int dE E^2 R exp(-E t), R = charges sqrt(1 - 4 m^2/E^2) (1 + 2 m^2/E^2), E = 2 m cosh u.
    """
    if not mass:
        return charges / (6 * np.pi**2 * t**3)
    u = np.arange(0, 34, 0.04)
    cosh = np.cosh(u)
    with np.errstate(over="ignore", under="ignore"):
        density = np.sinh(u) * np.tanh(u) * (cosh**2 + 0.5) * np.exp(-2 * mass * t[..., None] * cosh)
    return charges * 8 * mass**3 / (12 * np.pi**2) * 0.04 * density.sum(axis=-1)


def free_hisq_correlator(space: int, time: int, mass: float, twist: float = 0.0) -> Array:
    """C(t) / L^3 of free HISQ quarks and the local vector current, antiperiodic in t, 3 colours, ``[time]``.

    With M = 2 m + D, G = (2 m - D) g and g = (4 m^2 - D^2)^-1, which is nonzero at even displacements only:
    C(t) / L^3 = 3 sum_d (-1)^d_x [4 m^2 g^2 + sum_mu (D_mu g)^2], d_t = t. Momenta are 2 pi (k + twist) / L.
    """
    p = [2 * np.pi * (np.arange(space) + twist) / space] * 3 + [2 * np.pi * (np.arange(time) + 0.5) / time]
    hop = [2 * np.sin(q) * (9 / 8) - 2 * np.sin(3 * q) / 24 for q in p]
    grids = np.meshgrid(*hop, indexing="ij", sparse=True)
    inverse = 1 / (4 * mass**2 + sum(h**2 for h in grids))
    sign = np.where(np.arange(space) % 2, -1.0, 1.0)
    total = np.zeros(time)
    for factor in (2 * mass, *grids):
        values = np.abs(np.fft.ifftn(factor * inverse)) ** 2
        total += np.einsum("xyzt,x->t", values, sign)
    return 3 * total
