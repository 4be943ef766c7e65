"""Links against the directions of coarse operators that are gamma5-Hermitian."""

import numpy as np
import pytest

from support.refusals import refuses

pytestmark = pytest.mark.usefixtures("multigrid_precision")

SITES = 6


@pytest.mark.parametrize("n", [2, 10, 48, 66])
def test_links_and_local_matrices(backend, random, tolerance, n):
    diagonal, links = random(SITES, n, n), random(SITES, 8, n, n)
    inside = [random(SITES, n, n) for _ in range(4)]
    behind = np.random.default_rng(5).integers(0, SITES, (SITES, 4)).astype(np.int32)
    gamma5 = np.diag(np.repeat([1.0, -1.0], n // 2))
    expected, local = links.astype(complex), diagonal.astype(complex)
    for site in range(SITES):
        for mu in range(4):
            expected[site, 2 * mu + 1] = gamma5 @ links[behind[site, mu], 2 * mu].conj().T @ gamma5
            local[site] += inside[mu][site] + gamma5 @ inside[mu][site].conj().T @ gamma5
    arrays = [backend.array(each) for each in (diagonal, *inside, links, behind)]
    backend.kernels.coarse_dslash.add_backward(arrays[0], arrays[1:5], *arrays[5:])
    assert np.array_equal(backend.host(arrays[5]), expected.astype(links.dtype))
    assert np.abs(backend.host(arrays[0]) - local).max() <= tolerance * np.abs(local).max()


def test_misuse(backend, random):
    arrays = [backend.array(random(SITES, 4, 4)) for _ in range(5)]
    links, behind = backend.array(random(SITES, 8, 4, 4)), backend.array(np.zeros((SITES, 4), np.int32))
    add = backend.kernels.coarse_dslash.add_backward
    refuses("behind must be", add, arrays[0], arrays[1:], links, behind[:, :3])
    refuses(r"inside\[2\] must be", add, arrays[0], [*arrays[1:3], links, arrays[4]], links, behind)
