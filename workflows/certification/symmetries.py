"""Symmetries of operators on rough links: gamma5- and epsilon-hermiticity, gauge covariance."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from stages.lqcd.dirac.full_lattice import StaggeredOperator
from stages.lqcd.dirac.staggered import StaggeredDslash
from stages.lqcd.dirac.wilson import WilsonDslash, WilsonOperator
from stages.lqcd.gauge.hisq import hisq_links
from stages.lqcd.gauge.wilson_links import wilson_links
from stages.lqcd.kernels.dispatch import Array, as_numpy
from stages.lqcd.kernels.gamma import GAMMA5
from stages.lqcd.lattice.geometry import ODD, Lattice
from workflows.certification.check import DOUBLE, SINGLE, Check, Device, measured, rounding
from workflows.certification.fields import (
    deviation,
    inner,
    random_field,
    rotated,
    rough_links,
    rough_rotation,
)

LATTICE = Lattice((6, 4, 2, 4))
"""With an extent that no power of two divides, and one of two sites."""
WIDTHS, MORE_WIDTHS = (3, 16), (1, 2, 8, 12, 24, 32, 33)
Apply = Callable[[Array], Array]


def staggered_operator(
    thin: NDArray, lattice: Lattice, dtype: DTypeLike, device: Device
) -> StaggeredOperator:
    """2 m + D of HISQ links."""
    u = device.xp.asarray(thin)
    links = hisq_links(u, lattice, boundary="antiperiodic", naik_epsilon=-0.1)
    return StaggeredOperator(StaggeredDslash(links, dtype), 0.07)


def wilson_operator(thin: NDArray, lattice: Lattice, dtype: DTypeLike, device: Device) -> WilsonOperator:
    """The Wilson-clover operator M."""
    u = device.xp.asarray(thin)
    links = wilson_links(u, lattice, boundary="antiperiodic", csw=(0.91, 1.07))
    return WilsonOperator(WilsonDslash(links, dtype), 0.17)


OPERATORS: dict[str, Callable[..., Any]] = {"HISQ": staggered_operator, "Wilson-clover": wilson_operator}


def symmetries(device: Device) -> Iterator[Check]:
    """Checks of both operators in both precisions, at several numbers of right-hand sides."""
    thin = rough_links(311, LATTICE)
    for dtype in (DOUBLE, SINGLE):
        made = {name: make(thin, LATTICE, dtype, device) for name, make in OPERATORS.items()}
        for width in device.widths(WIDTHS, MORE_WIDTHS):
            what, limit = f"N = {width}, {np.dtype(dtype).name}", rounding(dtype)
            yield measured(
                f"epsilon-hermiticity: HISQ, {what}",
                "(y, M x) and (epsilon M epsilon y, x) on random fields",
                _hermiticity(made["HISQ"], epsilon, width, device),
                limit,
            )
            yield measured(
                f"gamma5-hermiticity: Wilson-clover, {what}",
                "(y, M x) and (gamma5 M gamma5 y, x) on random fields",
                _hermiticity(made["Wilson-clover"], gamma5, width, device),
                limit,
            )
        for name, make in OPERATORS.items():
            found = _covariance(make, made[name], thin, dtype, device)
            about = "M of transformed links and g M g^dag on random fields"
            yield measured(
                f"gauge covariance: {name}, {np.dtype(dtype).name}", about, found, 4 * rounding(dtype)
            )


def epsilon(x: Array) -> Array:
    """(-1)^(x + y + z + t) of fields ``[parity, ...]``."""
    turned = x.copy()
    turned[ODD] *= -1
    return turned


def gamma5(x: Array) -> Array:
    """gamma5 of spinors ``[parity, site, 12, N]``."""
    turned = x.copy()
    for component, sign in enumerate(np.repeat(np.diagonal(GAMMA5).real, 3)):
        turned[:, :, component] *= float(sign)
    return turned


def _hermiticity(M: Any, turn: Apply, width: int, device: Device) -> float:
    """Largest violation, relative to the norms of the fields."""
    x, y = (random_field(seed, (*M.shape, width), M.dtype, device.xp) for seed in (51, 53))
    image = M.apply(x)
    left, right = inner(y, image), inner(turn(M.apply(turn(y))), x)
    scale = np.sqrt(inner(y, y).real * inner(image, image).real)
    return float((np.abs(left - right) / scale).max())


def _covariance(make: Callable[..., Any], M: Any, thin: NDArray, dtype: DTypeLike, device: Device) -> float:
    g = rough_rotation(313, LATTICE)
    x = as_numpy(random_field(57, (*M.shape, 3), dtype, device.xp)).astype(complex)
    transformed = make(rotated(thin, g, LATTICE), LATTICE, dtype, device)
    found = transformed.apply(device.xp.asarray(_turned(g, x).astype(dtype)))
    image = as_numpy(M.apply(device.xp.asarray(x.astype(dtype)))).astype(complex)
    return deviation(found, _turned(g, image))


def _turned(g: NDArray, x: NDArray) -> NDArray[np.complex128]:
    """Colours of ``[parity, site, spin and colour, N]`` rotated by g."""
    spinors = x.reshape(*x.shape[:2], -1, 3, x.shape[-1])
    return np.einsum("pxab,pxsbn->pxsan", g, spinors).reshape(x.shape)
