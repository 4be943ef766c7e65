"""Staples against shifts of the plain lexicographic lattice."""

import numpy as np
import pytest

from stages.base.errors import InputError
from stages.lqcd.lattice.geometry import Lattice
from support.lexicographic import to_lexicographic, to_parity


def by_shifts(field, u, lattice, mu, nu):
    """U F U^dag above and U^dag F U below, by rolling the lexicographic lattice, in double."""
    f, u = (to_lexicographic(values.astype(complex), lattice) for values in (field, u))

    def ahead(values, direction, hops=1):
        return np.roll(values, -hops, axis=3 - direction)

    def dagger(values):
        return values.conj().swapaxes(-1, -2)

    above = u @ ahead(f, nu) @ dagger(ahead(u, mu))
    below = ahead(dagger(u) @ f @ ahead(u, mu), nu, -1)
    return to_parity(above + below, lattice)


@pytest.mark.parametrize("plane", [(mu, nu) for mu in range(4) for nu in range(4) if mu != nu], ids=str)
def test_equals_shifts_of_the_lattice(backend, random, tolerance, plane):
    lattice = Lattice((6, 4, 2, 8))
    start, field, links = (random(2, lattice.half_volume, 3, 3) for _ in range(3))
    out = backend.array(start)
    backend.kernels.smearing.add_staple(
        out, backend.array(field), backend.array(links), lattice, *plane, -0.7
    )
    expected = start - 0.7 * by_shifts(field, links, lattice, *plane)
    assert np.abs(backend.host(out) - expected).max() <= tolerance * np.abs(expected).max()


def test_refuses_a_plane_of_one_direction_and_overwriting(backend, random):
    lattice = Lattice((4, 4, 4, 4))
    out, links = (backend.array(random(2, lattice.half_volume, 3, 3)) for _ in range(2))
    with pytest.raises(InputError, match="two different directions"):
        backend.kernels.smearing.add_staple(out, links, links, lattice, 2, 2, 1.0)
    with pytest.raises(InputError, match="must not be one of its inputs"):
        backend.kernels.smearing.add_staple(out, links, out, lattice, 0, 1, 1.0)
