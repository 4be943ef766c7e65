"""Reading needs little memory beyond the links themselves."""

import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from stages.lqcd.lattice.formats import check_gauge, read_gauge, write_ildg, write_nersc
from stages.lqcd.lattice.geometry import Lattice
from stages.lqcd.lattice.plaquette import plaquette
from support.foreign_writers import write_openqcd
from support.lexicographic import gauge_to_lexicographic

LATTICE = Lattice((12, 16, 16, 20))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Fields of diagonal links, written in each of the ways of reading that differ in memory."""
    folder = tmp_path_factory.mktemp("large")
    angles = np.random.default_rng(90).uniform(-3, 3, (4, 2, LATTICE.half_volume))
    phases = np.stack([np.exp(1j * angles), np.exp(-1j * angles), np.ones_like(angles)], axis=-1)
    links = phases[..., None] * np.eye(3)
    write_ildg(folder / "ildg64", links, LATTICE, 64)
    write_ildg(folder / "ildg32", links, LATTICE, 32)
    write_nersc(folder / "nersc", links, LATTICE, 64, rows=2)
    write_openqcd(folder / "openqcd", gauge_to_lexicographic(links, LATTICE), plaquette(links, LATTICE).total)
    return {path.name: path for path in folder.iterdir()}


@pytest.mark.parametrize("read", [read_gauge, check_gauge])
@pytest.mark.parametrize("name", ["ildg64", "ildg32", "nersc", "openqcd"])
def test_peak_memory_is_below_one_and_a_half_fields(files, name, read):
    field = LATTICE.volume * 4 * 18 * (4 if name == "ildg32" else 8)
    tracemalloc.start()
    try:
        read(files[name])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert field < peak < 1.5 * field
