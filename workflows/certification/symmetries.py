"""Symmetries of operators on rough links: gamma5- and epsilon-hermiticity, gauge covariance."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import DTypeLike, NDArray

from stages.lqcd.dirac.full_lattice import StaggeredOperator
from stages.lqcd.dirac.operator import LinearOperator
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
Turn = Callable[[Array], Array]
Make = Callable[[NDArray, Lattice, DTypeLike, Device], LinearOperator]


def staggered_operator(
    thin: NDArray, lattice: Lattice, dtype: DTypeLike, device: Device
) -> StaggeredOperator:
    """2 m + D of HISQ links."""
    links = hisq_links(device.array(thin), lattice, boundary="antiperiodic", naik_epsilon=-0.1)
    return StaggeredOperator(StaggeredDslash(links, dtype), 0.07)


def wilson_operator(thin: NDArray, lattice: Lattice, dtype: DTypeLike, device: Device) -> WilsonOperator:
    """The Wilson-clover operator M."""
    links = wilson_links(device.array(thin), lattice, boundary="antiperiodic", csw=(0.91, 1.07))
    return WilsonOperator(WilsonDslash(links, dtype), 0.17)


def twisted_operator(thin: NDArray, lattice: Lattice, dtype: DTypeLike, device: Device) -> WilsonOperator:
    """The same with a twisted mass."""
    return wilson_operator(thin, lattice, dtype, device).with_twist(0.23)


def symmetries(device: Device) -> Iterator[Check]:
    """Checks of both operators in both precisions, at several numbers of right-hand sides."""
    thin = rough_links(311, LATTICE)
    for dtype in (DOUBLE, SINGLE):
        limit = rounding(dtype)
        kinds: tuple[tuple[str, Make, str, Turn], ...] = (
            ("HISQ", staggered_operator, "epsilon", epsilon),
            ("Wilson-clover", wilson_operator, "gamma5", gamma5),
            ("twisted clover", twisted_operator, "gamma5", gamma5),
        )
        made = {name: make(thin, LATTICE, dtype, device) for name, make, *_ in kinds}
        for width in device.widths(WIDTHS, MORE_WIDTHS):
            for name, _, sign, turn in kinds:
                yield measured(
                    f"{sign}-hermiticity: {name}, N = {width}, {np.dtype(dtype).name}",
                    f"(y, M x) and ({sign} M {sign} y, x) on random fields",
                    _hermiticity(made[name], turn, width, device),
                    limit,
                )
        for name, make, *_ in kinds:
            found = _covariance(make, made[name], thin, dtype, device)
            about = "M of transformed links and g M g^dag on random fields"
            yield measured(f"gauge covariance: {name}, {np.dtype(dtype).name}", about, found, 4 * limit)


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


def _hermiticity(M: LinearOperator, turn: Turn, width: int, device: Device) -> float:
    """Largest violation, relative to the norms of the fields; of twisted quarks the flavours are swapped."""
    x, y = (random_field(seed, (*M.shape, width), M.dtype, device.xp) for seed in (51, 53))
    image = M.apply(x)
    other: LinearOperator = M.other_flavour if isinstance(M, WilsonOperator) else M
    left, right = inner(y, image), inner(turn(other.apply(turn(y))), x)
    scale = np.sqrt(inner(y, y).real * inner(image, image).real)
    return float((np.abs(left - right) / scale).max())


def _covariance(make: Make, M: LinearOperator, thin: NDArray, dtype: DTypeLike, device: Device) -> float:
    g = rough_rotation(313, LATTICE)
    x = as_numpy(random_field(57, (*M.shape, 3), dtype, device.xp)).astype(complex)
    transformed = make(rotated(thin, g, LATTICE), LATTICE, dtype, device)
    found = transformed.apply(device.array(_turned(g, x), dtype))
    image = as_numpy(M.apply(device.array(x, dtype))).astype(complex)
    return deviation(found, _turned(g, image))


def _turned(g: NDArray, x: NDArray) -> NDArray[np.complex128]:
    """Colours of ``[parity, site, spin and colour, N]`` rotated by g."""
    spinors = x.reshape(*x.shape[:2], -1, 3, x.shape[-1])
    return np.einsum("pxab,pxsbn->pxsan", g, spinors).reshape(x.shape)
