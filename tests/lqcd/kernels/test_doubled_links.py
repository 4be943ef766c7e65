"""Doubled links against shifts of the plain lexicographic lattice."""

from __future__ import annotations

import numpy as np
import pytest
from lexicographic import to_lexicographic, to_parity

from stages.lqcd.lattice.geometry import Lattice

LATTICE = Lattice((6, 4, 2, 8))


def by_shifts(field, mu, hops):
    """Links forward, and minus the pre-daggered ones backward, in one direction, ``[parity, site, 3, 3]``."""
    plain = to_lexicographic(field[mu], LATTICE)
    behind = np.roll(plain, hops, axis=3 - mu).conj().swapaxes(-1, -2)
    return field[mu], to_parity(-behind, LATTICE)


@pytest.mark.parametrize("parity", [0, 1])
@pytest.mark.parametrize("improved", [True, False], ids=["HISQ", "naive"])
def test_equals_shifts_of_the_lattice(backend, dtype, parity, improved):
    rng = np.random.default_rng(8)
    shape = (4, 2, LATTICE.half_volume, 3, 3)
    fat, long = (rng.normal(size=shape) + 1j * rng.normal(size=shape) for _ in range(2))
    out = backend.xp.full((LATTICE.half_volume, 16 if improved else 8, 3, 3), np.nan, dtype)
    links = [backend.array(fat), backend.array(long) if improved else None]
    backend.kernels.link_fields.doubled_links(*links, LATTICE, parity, out)
    expected = []
    for mu in range(4):
        expected += by_shifts(fat, mu, 1)
        if improved:
            expected += by_shifts(long, mu, 3)
    wanted = np.stack([direction[parity] for direction in expected], axis=1)
    assert np.array_equal(backend.host(out), wanted.astype(dtype))
