"""Operators with a known matrix: dense ones, and staggered and Wilson operators of a small rough field."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from stages.lqcd.dirac.staggered import NormalOperator, StaggeredDslash
from stages.lqcd.dirac.wilson import WilsonDslash, WilsonOperator
from stages.lqcd.dirac.wilson_schur import WilsonSchur
from stages.lqcd.gauge.hisq import StaggeredLinks, hisq_links, naive_links
from stages.lqcd.gauge.wilson_links import WilsonLinks, wilson_links
from stages.lqcd.kernels.dispatch import kernel, kernels_of
from stages.lqcd.lattice.geometry import Lattice
from support.matrices import random_su3

LATTICE = Lattice((4, 4, 2, 4))


class DenseOperator:
    """A matrix ``[3 L, 3 L]`` on fields ``[L, 3, N]``; it says it is positive definite and notes its use."""

    hermitian = positive_definite = True
    xp, shift = np, 0.0

    def __init__(self, matrix: NDArray, widths: list[int] | None = None) -> None:
        self.matrix, self.dtype = matrix, matrix.dtype
        self.shape = (len(matrix) // 3, 3)
        self.widths = [] if widths is None else widths
        """Right-hand sides of each application so far, in any precision."""

    @property
    def adjoint(self) -> DenseOperator:
        return self

    def apply(self, x: NDArray, out: NDArray | None = None) -> NDArray:
        self.widths.append(x.shape[-1])
        result = (self.matrix @ x.reshape(len(self.matrix), -1)).reshape(x.shape)
        if out is None:
            return result
        out[...] = result
        return out

    def astype(self, dtype: Any) -> DenseOperator:
        return DenseOperator(self.matrix.astype(dtype), self.widths)


@pytest.fixture
def dense() -> Callable[..., DenseOperator]:
    """dense(seed, eigenvalues): the operator of these eigenvalues in the random basis of this seed."""

    def make(seed: int, eigenvalues: NDArray) -> DenseOperator:
        basis = random_basis(seed, len(eigenvalues))
        return DenseOperator((basis * eigenvalues) @ basis.conj().T)

    return make


@pytest.fixture
def basis() -> Callable[[int, int], NDArray]:
    """basis(seed, n): a random unitary matrix, the eigenvectors of dense(seed, ...)."""
    return random_basis


@cache
def random_basis(seed: int, size: int) -> NDArray:
    rng = np.random.default_rng(seed)
    return np.linalg.qr(rng.normal(size=(size, size)) + 1j * rng.normal(size=(size, size)))[0]


@pytest.fixture
def random_block() -> Callable[..., NDArray]:
    """random_block(seed, *shape): complex Gaussian numbers."""

    def draw(seed: int, *shape: int, dtype: Any = np.complex128) -> NDArray:
        rng = np.random.default_rng(seed)
        return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(dtype)

    return draw


def rough_links(lattice: Lattice) -> NDArray:
    """SU(3) links ``[mu, parity, site, 3, 3]``, moderately rough."""
    return random_su3(np.random.default_rng(811), 4, 2, lattice.half_volume, size=0.7)


@pytest.fixture(scope="session")
def thin_links() -> NDArray:
    return rough_links(LATTICE)


@pytest.fixture(scope="module")
def dslash(staggered: Callable[..., NormalOperator]) -> StaggeredDslash:
    """The improved operator, packed for the kernels of the module."""
    return staggered("hisq", 1.0).dslash


@pytest.fixture(scope="session")
def staggered(thin_links: NDArray) -> Callable[..., NormalOperator]:
    """staggered(action, mass, backend='cpu'): the normal operator, action 'hisq' or 'naive'."""
    return staggered_on(LATTICE, thin_links)


@pytest.fixture(scope="session")
def larger() -> Callable[..., NormalOperator]:
    """`staggered` on 4^4, whose spectrum is denser."""
    lattice = Lattice((4, 4, 4, 4))
    return staggered_on(lattice, rough_links(lattice))


def staggered_on(lattice: Lattice, thin_links: NDArray) -> Callable[..., NormalOperator]:
    with kernels_of("cpu"):
        links = {
            "hisq": hisq_links(thin_links, lattice, boundary="antiperiodic", naik_epsilon=0.0),
            "naive": naive_links(thin_links, lattice, boundary="antiperiodic"),
        }
    built: dict[Any, StaggeredDslash] = {}

    def make(action: str, mass: float, backend: str = "cpu") -> NormalOperator:
        key = (action, backend, kernel("hisq_dslash.pack_fields", np.ndarray))
        if key not in built:
            built[key] = StaggeredDslash(located(links[action], backend))
        return NormalOperator(built[key], mass)

    return make


def located(links: StaggeredLinks, backend: str) -> StaggeredLinks:
    """The links in the memory that a backend works on."""
    if backend != "cuda":
        return links
    to_device = import_module("cupy").asarray
    long = None if links.long is None else to_device(links.long)
    return replace(links, fat=to_device(links.fat), long=long)


@pytest.fixture(scope="session")
def wilson(thin_links: NDArray) -> Callable[..., WilsonSchur]:
    """wilson(mass, backend='cpu', csw=1.0): the clover operator, even-odd."""
    links: dict[float, WilsonLinks] = {}
    built: dict[Any, WilsonDslash] = {}

    def make(mass: float, backend: str = "cpu", csw: float = 1.0) -> WilsonSchur:
        key = (backend, csw, kernel("wilson_dslash.pack_fields", np.ndarray))
        if key not in built:
            if csw not in links:
                links[csw] = wilson_links(thin_links, LATTICE, boundary="antiperiodic", csw=csw)
            built[key] = WilsonDslash(wilson_links_at(links[csw], backend))
        return WilsonSchur(WilsonOperator(built[key], mass))

    return make


def wilson_links_at(links: WilsonLinks, backend: str) -> WilsonLinks:
    """The links in the memory that a backend works on."""
    if backend != "cuda":
        return links
    to_device = import_module("cupy").asarray
    return replace(links, links=to_device(links.links))
