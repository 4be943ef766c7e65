"""Doubled links against shifts of the plain lexicographic lattice."""

import numpy as np
import pytest

from stages.lqcd.kernels.dispatch import implementation_of
from stages.lqcd.lattice.geometry import Lattice
from support.lexicographic import to_lexicographic, to_parity

LATTICE = Lattice((6, 4, 2, 8))


def by_shifts(field, mu, hops, sign):
    """Links forward, and pre-daggered ones backward with a sign, of a direction, ``[parity, site, 3, 3]``."""
    plain = to_lexicographic(field[mu], LATTICE)
    behind = np.roll(plain, hops, axis=3 - mu).conj().swapaxes(-1, -2)
    return field[mu], to_parity(sign * behind, LATTICE)


def doubled_links(backend, links, parity, out):
    """Write them as each package of a backend does."""
    if backend.xp is not np:
        tile = (1, 1, 1, 1)
        if out.shape[1] == 6:
            rows = out.reshape(-1, 6, 1, 3, 3)
            numbers = backend.array(np.ones(12))
            weighted = implementation_of("link_fields.weighted_in_tiles", "cuda")
            yield weighted(links[0], numbers, LATTICE, parity, rows, tile)
        else:
            yield implementation_of("link_fields.in_tiles", "cuda")(*links, LATTICE, parity, out, tile)
        return
    for package in ("cpu", "reference"):
        yield implementation_of("link_fields.doubled_links", package)(*links, LATTICE, parity, out)


@pytest.mark.parametrize("parity", [0, 1])
@pytest.mark.parametrize("directions", [16, 8, 6])
def test_equals_shifts_of_the_lattice(backend, dtype, parity, directions):
    rng = np.random.default_rng(8)
    shape = (4, 2, LATTICE.half_volume, 3, 3)
    fat, long = (rng.normal(size=shape) + 1j * rng.normal(size=shape) for _ in range(2))
    expected = []
    for mu in range(3 if directions == 6 else 4):
        expected += by_shifts(fat, mu, 1, 1 if directions == 6 else -1)
        if directions == 16:
            expected += by_shifts(long, mu, 3, -1)
    wanted = np.stack([direction[parity] for direction in expected], axis=1)
    links = [backend.array(fat), backend.array(long) if directions == 16 else None]
    out = backend.xp.full((LATTICE.half_volume, directions, 3, 3), np.nan, dtype)
    for _ in doubled_links(backend, links, parity, out):
        assert np.array_equal(backend.host(out), wanted.astype(dtype))
        out.fill(np.nan)
