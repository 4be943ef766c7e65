"""What an eigensolve of the Laplacian allocates is what a plan says."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from pipeline import At
from stages.laplace_eigenvectors import laplace_eigenvectors
from stages.lattice.geometry import Lattice
from stages.smeared_links import SmearedLinks
from workflows.laph_footprint import eigensolve_device_memory

SIZES = [((8, 8, 8, 8), 24), ((12, 12, 12, 4), 40), ((8, 8, 8, 4), 64)]


@pytest.mark.slow
@pytest.mark.parametrize(("extents", "vectors"), SIZES)
def test_an_eigensolve_stays_within_20_percent_of_the_plan(
    extents: tuple[int, int, int, int], vectors: int
) -> None:
    lattice, rng = Lattice(extents), np.random.default_rng(3)
    matrices = rng.normal(size=(4, 2, lattice.half_volume, 3, 3, 2)).view(complex)[..., 0]
    links = SmearedLinks(np.linalg.qr(matrices)[0], lattice)
    at = At(config="a", time=tuple(range(lattice.time_extent)))
    laplace_eigenvectors(links, at=at, vectors=vectors, tolerance=0.5)  # compiles what is needed
    tracemalloc.start()
    laplace_eigenvectors(links, at=at, vectors=vectors, tolerance=1e-3)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    planned = eigensolve_device_memory(lattice, lattice.time_extent, vectors, 8, "double")
    assert planned / 1.2 < peak < 1.2 * planned
