"""Random fields on time slices, and the insertions between them by their definition."""

import numpy as np

from stages.lqcd.dirac.displacement import steps_of
from support.lexicographic import gauge_to_lexicographic, to_lexicographic


class Elsewhere:
    """An array that must be moved before it is used, and tells what was read of it."""

    def __init__(self, array):
        self.array, self.shape, self.dtype, self.read = array, array.shape, array.dtype, []

    def __getitem__(self, part):
        self.read.append(part)
        return self.array[part].copy()


def normal(seed, *shape, dtype=np.complex128):
    rng = np.random.default_rng(seed)
    return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(dtype)


def special_unitary(seed, *shape):
    q, _ = np.linalg.qr(normal(seed, *shape, 3, 3))
    q[..., 0] /= np.linalg.det(q)[..., None]
    return q


def eigenvectors(lattice, k, seed, dtype=np.complex128):
    return normal(seed, lattice.time_extent, 2, lattice.sites_per_slice, 3, k, dtype=dtype)


def solutions(lattice, n, seed, dtype=np.complex128):
    return normal(seed, 2, lattice.half_volume, 12, n, dtype=dtype)


def by_coordinates(vectors, lattice):
    """``[time, parity, site, ...]`` to ``[t, z, y, x, ...]``."""
    return to_lexicographic(
        vectors.swapaxes(0, 1).reshape(2, lattice.half_volume, *vectors.shape[3:]), lattice
    )


def moved(field, links, word, lattice):
    """D of a field ``[t, z, y, x, colour, column]``, a step at a time from the end of the path."""
    u = gauge_to_lexicographic(links, lattice)
    for mu, step in reversed(steps_of(word)):
        link, axis = u[..., mu, :, :], 3 - mu
        if step == 1:
            field = link @ np.roll(field, -1, axis)
        else:
            field = np.roll(link.conj().swapaxes(-1, -2) @ field, 1, axis)
    return field


def waves(lattice, momentum):
    """e^{ipx} ``[t, z, y, x]``."""
    extents = lattice.extents
    _, z, y, x = np.indices(extents[::-1])
    return np.exp(2j * np.pi * sum(n * c / e for n, c, e in zip(momentum, (x, y, z), extents, strict=False)))
