"""The free field: operators on plane waves against their eigenvalues in closed form."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import DTypeLike, NDArray

from stages.lqcd.dirac.staggered import SquaredDslash, StaggeredDslash
from stages.lqcd.dirac.wilson import WilsonDslash, WilsonOperator
from stages.lqcd.distillation.eigenvectors import LaplaceSolver
from stages.lqcd.eigen.block_lanczos import BlockLanczos
from stages.lqcd.gauge.hisq import hisq_links, naive_links
from stages.lqcd.gauge.wilson_links import wilson_links
from stages.lqcd.kernels.dispatch import as_numpy
from stages.lqcd.kernels.gamma import GAMMA
from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice
from workflows.certification.check import DOUBLE, SINGLE, Check, Device, measured, rounding
from workflows.certification.fields import deviation, largest, momenta, plane_waves, unit_links

LATTICE = Lattice((4, 4, 2, 6))
WIDTH = 16
MASS = 0.21
LOWEST = 6
"""Eigenvalues that the eigensolver looks for; free ones come in large multiplets."""


WEIGHTS = {"naive": (1.0, 0.0), "HISQ": (9 / 8, -1 / 24)}
"""Of hops over one link and over three."""


def free_field(device: Device) -> Iterator[Check]:
    """Checks of all momenta: every eigenvalue of every operator."""
    for boundary in ("periodic", "antiperiodic"):
        for dtype in (DOUBLE, SINGLE):
            errors = {f"{name} staggered": _staggered(name, boundary, dtype, device) for name in WEIGHTS}
            errors["Wilson-clover"] = _wilson(boundary, dtype, device)
            for name, error in errors.items():
                about = f"{boundary}, {dtype.name}"
                limit = rounding(dtype)
                yield measured(f"free field: {name}, {about}", f"all momenta, {about}", error, limit)
    about = f"{LOWEST} eigenvalues of HISQ and 4 sum (9/8 sin p - 1/24 sin 3p)^2"
    yield measured("free field: lowest of -D^2 by block Lanczos", about, _lanczos(device), 1e-9)
    about = "the lowest 7 of each time slice and 4 sum sin^2(p/2)"
    yield measured("free field: Laplacian eigenvalues", about, _laplacian(device), 1e-9)


def _squares(p: NDArray, action: str) -> NDArray[np.float64]:
    """Eigenvalues of -D^2."""
    one, three = WEIGHTS[action]
    return ((2 * one * np.sin(p) + 2 * three * np.sin(3 * p)) ** 2).sum(axis=1)


def _free_dslash(action: str, boundary: str, dtype: DTypeLike, device: Device) -> StaggeredDslash:
    unit = unit_links(LATTICE, device.xp)
    if action == "naive":
        return StaggeredDslash(naive_links(unit, LATTICE, boundary=boundary), dtype)
    return StaggeredDslash(hisq_links(unit, LATTICE, boundary=boundary, naik_epsilon=0.0), dtype)


def _staggered(action: str, boundary: str, dtype: DTypeLike, device: Device) -> float:
    """Largest error of -D^2 on plane waves, which are its eigenvectors on either parity."""
    dslash, worst = _free_dslash(action, boundary, dtype, device), 0.0
    colours = np.array([1.0, -0.5 + 0.25j, 0.75j])
    for parity in (EVEN, ODD):
        squared = SquaredDslash(dslash, parity)
        for p in _momenta(boundary):
            x = plane_waves(LATTICE, parity, p)[:, None, :] * colours[:, None]
            found = as_numpy(squared.apply(device.array(x, dtype)))
            worst = max(worst, largest(found - _squares(p, action) * x) / 16)  # of eigenvalues up to 16
    return worst


def _wilson(boundary: str, dtype: DTypeLike, device: Device) -> float:
    """Largest error of M on plane waves of random spinors: m + sum_mu (1 - cos p + i gamma sin p)."""
    links = wilson_links(unit_links(LATTICE, device.xp), LATTICE, boundary=boundary, csw=1.3)
    M, worst = WilsonOperator(WilsonDslash(links, dtype), MASS), 0.0
    rng = np.random.default_rng(20261123)
    for p in _momenta(boundary):
        spinors = rng.normal(size=(4, 3, len(p))) + 1j * rng.normal(size=(4, 3, len(p)))
        diagonal = MASS + (1 - np.cos(p)).sum(axis=1)
        turned = diagonal * spinors + 1j * np.einsum("mrs,nm,scn->rcn", GAMMA, np.sin(p), spinors)
        waves = np.stack([plane_waves(LATTICE, parity, p) for parity in (EVEN, ODD)])[:, :, None, :]
        x, expected = (waves * part.reshape(12, -1) for part in (spinors, turned))
        worst = max(worst, deviation(M.apply(device.array(x, dtype)), expected))
    return worst


def _momenta(boundary: str) -> list[NDArray]:
    """All momenta, as many at a time as fields have right-hand sides."""
    return np.array_split(momenta(LATTICE, boundary), LATTICE.volume // WIDTH)


def _lanczos(device: Device) -> float:
    """Relative error of the lowest eigenvalues."""
    A = SquaredDslash(_free_dslash("HISQ", "antiperiodic", DOUBLE, device), EVEN)
    expected = np.repeat(np.sort(_squares(momenta(LATTICE, "antiperiodic"), "HISQ"))[::2], 3)
    found = BlockLanczos(LOWEST, 16, tolerance=1e-10).solve(A).values[:LOWEST]
    return float(np.abs(np.asarray(found) / expected[:LOWEST] - 1).max())


def _laplacian(device: Device) -> float:
    """Error of the lowest eigenvalues on every slice."""
    lattice = Lattice((4, 4, 4, 4))
    p = momenta(lattice, "periodic").reshape(*lattice.extents, 4)[:, :, :, 0, :3].reshape(-1, 3)
    expected = np.repeat(np.sort((4 * np.sin(p / 2) ** 2).sum(axis=1)), 3)[:7]
    modes = LaplaceSolver(7).solve(unit_links(lattice, device.xp), lattice)
    return float(np.abs(as_numpy(modes.values) - expected).max()) / 12
