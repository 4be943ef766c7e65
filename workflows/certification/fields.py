"""Fields that checks work on: rough and free links, random and plane waves, from NumPy's own generator."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from stages.lqcd.kernels.dispatch import Array, as_numpy
from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice


def random_field(seed: int, shape: tuple[int, ...], dtype: DTypeLike, xp: ModuleType) -> Array:
    """Complex normal numbers."""
    rng = np.random.default_rng(seed)
    return xp.asarray((rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(dtype))


def unit_links(lattice: Lattice, xp: ModuleType) -> Array:
    """Free links ``[mu, parity, site, 3, 3]``."""
    return xp.tile(xp.eye(3, dtype=complex), (4, 2, lattice.half_volume, 1, 1))


def rough_links(seed: int, lattice: Lattice, size: float = 0.4) -> NDArray[np.complex128]:
    """SU(3) links some way from one, ``[mu, parity, site, 3, 3]``, on the host."""
    return _special_unitary(seed, (4, 2, lattice.half_volume), size)


def rough_rotation(seed: int, lattice: Lattice) -> NDArray[np.complex128]:
    """A gauge transformation ``[parity, site, 3, 3]``, on the host."""
    return _special_unitary(seed, (2, lattice.half_volume), 1.0)


def _special_unitary(seed: int, shape: tuple[int, ...], size: float) -> NDArray[np.complex128]:
    rng = np.random.default_rng(seed)
    noise = rng.normal(size=(*shape, 3, 3)) + 1j * rng.normal(size=(*shape, 3, 3))
    unitary, upper = np.linalg.qr(np.eye(3) + size * noise)
    phases = np.diagonal(upper, axis1=-2, axis2=-1)
    unitary = unitary * (phases / abs(phases))[..., None, :]
    return unitary / np.linalg.det(unitary)[..., None, None] ** (1 / 3)


def rotated(links: NDArray, g: NDArray, lattice: Lattice) -> NDArray[np.complex128]:
    """Links U_mu(x) -> g(x) U_mu(x) g(x + mu)^dag."""
    turned = np.empty_like(links)
    for mu in range(4):
        for parity in (EVEN, ODD):
            ahead = g[1 - parity][lattice.neighbour(parity, mu, 1)]
            turned[mu, parity] = g[parity] @ links[mu, parity] @ ahead.conj().swapaxes(-1, -2)
    return turned


def momenta(lattice: Lattice, boundary: str) -> NDArray[np.float64]:
    """All momenta of a quark, ``[momentum, mu]``."""
    axes = [
        2 * np.pi / extent * (np.arange(extent) + 0.5 * (mu == 3 and boundary == "antiperiodic"))
        for mu, extent in enumerate(lattice.extents)
    ]
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 4)


def plane_waves(lattice: Lattice, parity: int, p: NDArray) -> NDArray[np.complex128]:
    """exp(i p x) on the sites of a parity, ``[site, momentum]``."""
    return np.exp(1j * lattice.coordinates(parity) @ p.T)


def largest(array: Array) -> float:
    """Largest absolute value."""
    host: Any = as_numpy(array)
    return float(np.abs(host).max()) if host.size else 0.0


def deviation(found: Array, expected: NDArray) -> float:
    """Largest difference, relative to the largest expected element."""
    return largest(as_numpy(found) - expected) / largest(expected)


def inner(x: Array, y: Array) -> NDArray[np.complex128]:
    """conj(x) . y of each right-hand side, in double, by NumPy: no kernel takes part."""
    left, right = (as_numpy(field).astype(complex).reshape(-1, field.shape[-1]) for field in (x, y))
    return (left.conj() * right).sum(axis=0)
