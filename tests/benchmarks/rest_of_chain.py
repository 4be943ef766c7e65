"""Time everything of a measurement but its solves on the device at hand, step by step, as a Markdown table.

    python tests/benchmarks/rest_of_chain.py [--lattice X Y Z T] [--folder F]

The first call (compilation and tables included), the median of the next ones, bytes that must be moved over
that time where they are counted, and the peak of device memory during the step. The file is written to the
folder and read back from the page cache.
"""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import cupy
import numpy as np

from pipeline import At
from script import LARGE, PrintedTable, arguments_of
from stages.ensemble.configuration import file_configuration, heatbath_configuration
from stages.lqcd.dirac.staggered import StaggeredDslash
from stages.lqcd.gauge.fat_links import Paths, fat_links, long_links
from stages.lqcd.gauge.heatbath import thermalised
from stages.lqcd.gauge.hisq import StaggeredLinks, hisq_links
from stages.lqcd.gauge.phases import with_boundary, with_phases
from stages.lqcd.gauge.reunitarise import to_su3, to_u3
from stages.lqcd.kernels import heatbath, hisq_dslash, slice_products, smearing
from stages.lqcd.kernels.cuda import link_fields
from stages.lqcd.kernels.transfer import copy_to_host, to_backend, to_device
from stages.lqcd.lattice.formats import write_ildg
from stages.lqcd.lattice.geometry import Lattice
from stages.lqcd.noise import Dilution, dilute, noise_vectors
from workflows.benchmarks.machine import Device, Work

BLOCK = 16
"""Right-hand sides at a time."""

BETA, SEED = 6.0, 3
PATHS = Paths(1 / 8, 1 / 16, 1 / 64, 1 / 384)


class Steps:
    """Steps of one lattice as they are timed."""

    def __init__(self, device: Device, lattice: Lattice) -> None:
        self.device, self.lattice = device, lattice
        self.table = PrintedTable("step", "first call (s)", "next calls (ms)", "GB/s", "peak (GB)")

    def add(self, name: str, work: Work, moved: float = 0, repeats: int = 3) -> None:
        """moved: bytes to relate the time to, if any."""
        pool = cupy.get_default_memory_pool()
        first = self.device.wall_seconds(work)
        pool.free_all_blocks()
        before = pool.used_bytes()
        later = median(self.device.wall_seconds(work) for _ in range(repeats))
        peak = (pool.total_bytes() - before) / 1e9
        self.table.add(name, first, 1e3 * later, moved / later / 1e9 if moved else None, peak)


def link_steps(steps: Steps, host: np.ndarray) -> StaggeredLinks:
    """Transfers, and the construction of HISQ links by its parts."""
    lattice, links = steps.lattice, cupy.asarray(host)
    size = links.nbytes
    steps.add("links: host to device, pageable", lambda: cupy.asarray(host), size)
    steps.add("links: host to device, in pieces", lambda: to_device(host), size)
    steps.add("links: device to host, pageable", links.get, size)
    steps.add("links: device to host, in pieces", lambda: copy_to_host(links), size)
    build = partial(hisq_links, links, lattice, boundary="antiperiodic", naik_epsilon=0.0)
    steps.add("HISQ links", build)
    steps.add("- to_su3", lambda: to_su3(links), 2 * size)
    thin = with_boundary(to_su3(links).links, lattice, "antiperiodic")
    steps.add("- with_boundary", lambda: with_boundary(links, lattice, "antiperiodic"))
    level_one = fat_links(thin, lattice, PATHS)
    (out, total), one = cupy.zeros_like(thin[:2]), thin[0]
    steps.add("- add_staple", lambda: smearing.add_staple(out, one, thin[3], lattice, 0, 3, 0.1), size)
    steps.add("- weighted_sum", lambda: smearing.weighted_sum(0.1, one, 0.3, out, total), 3 / 4 * size)
    steps.add("- fat_links", lambda: fat_links(thin, lattice, PATHS))
    steps.add("- to_u3", lambda: to_u3(level_one), 2 * size)
    steps.add("- long_links", lambda: long_links(thin, lattice, 0.1), 2 * size)
    steps.add("- with_phases", lambda: with_phases(thin, lattice, out=thin), 2 * size)
    return build()


def source_steps(steps: Steps, links: StaggeredLinks) -> None:
    """Noise and dilution, the operator's links, the current; a dslash for scale."""
    lattice, dilution = steps.lattice, Dilution(displacement=2)
    block = lattice.half_volume * 3 * BLOCK * 16
    for kind in ("z2", "u1", "gaussian"):
        make = partial(noise_vectors, lattice, 0, "a", 7, range(BLOCK), kind, xp=cupy)
        steps.add(f"noise {kind}, {BLOCK} vectors, one parity", make, block)
    noise = noise_vectors(lattice, 0, "a", 7, range(8), "z2", xp=cupy)
    partition = dilution.partition(lattice, 0)
    steps.add("partition by displacement", lambda: dilution.partition(lattice, 0))
    steps.add("dilute a block", lambda: dilute(noise, partition, range(8, 8 + BLOCK)), block)
    for dtype in (np.complex128, np.complex64):
        doubled = cupy.empty((lattice.half_volume, 16, 3, 3), dtype)
        steps.add(
            f"doubled links {dtype.__name__}, one parity",
            partial(link_fields.in_tiles, links.fat, links.long, lattice, 0, doubled, (1, 1, 1, 1)),
        )
        steps.add(f"operator {dtype.__name__}", lambda: StaggeredDslash(links, dtype).packed)  # noqa: B023
    current = links.thin()
    x, y = dilute(noise, partition, range(BLOCK)), dilute(noise, partition, range(BLOCK))
    contraction = partial(slice_products.one_link_current, current, x, y, lattice, 0)
    steps.add("one_link_current", contraction, 2 * block + current.nbytes // 2)
    packed = hisq_dslash.pack_fields(links.fat, links.long, lattice, 0, np.complex128)
    steps.add("for scale: dslash complex128", partial(hisq_dslash.hisq_dslash, packed, x, cupy.empty_like(x)))


def file_step(steps: Steps, host: np.ndarray, folder: Path) -> None:
    """A configuration's file, written before."""
    path = folder / "a.ildg"
    write_ildg(path, host, steps.lattice, 64)
    at, extents = At(config="a", backend="cuda"), steps.lattice.extents
    read = partial(file_configuration, at=at, path=path, extents=extents)
    steps.add("file to device, verified", lambda: to_backend(read().links, "cuda"), host.nbytes, 2)


def heatbath_steps(steps: Steps) -> None:
    """Sweeps by their parts, then starts as the stage makes them; rates count every link field once."""
    lattice = steps.lattice
    links = thermalised(lattice, BETA, SEED, "a", 1, 0, xp=cupy)
    moved = 9 * links.nbytes
    steps.add("heat-bath sweep", lambda: heatbath.heat_bath(links, lattice, BETA, (5, 7), 9), moved)
    steps.add("over-relaxation sweep", lambda: heatbath.over_relax(links, lattice), moved)
    small = (16, 16, 16, 16)
    for backend, extents, sweeps in (("cuda", lattice.extents, 50), ("cpu", small, 5)):
        at = At(config="a", backend=backend)
        options: dict[str, Any] = {"extents": extents, "beta": BETA, "seed": SEED, "sweeps": sweeps}
        start = partial(heatbath_configuration, at=at, **options, overrelaxation=4)
        steps.add(
            f"{backend}: {sweeps} sweeps of {extents}, each with 4 of over-relaxation", start, repeats=1
        )
        print(f"plaquette {at.statistics['plaquette']:.5f}")


def random_links(lattice: Lattice) -> np.ndarray:
    """Links in SU(3), made of a few matrices."""
    rng = np.random.default_rng(5)
    matrices = np.linalg.qr(rng.normal(size=(1 << 16, 3, 3)) + 1j * rng.normal(size=(1 << 16, 3, 3)))[0]
    matrices[..., 0] /= np.linalg.det(matrices)[:, None]
    return matrices[rng.integers(len(matrices), size=(4, 2, lattice.half_volume))]


def main() -> None:
    """Print the table for the device at hand."""
    arguments = arguments_of(__doc__, lattice=LARGE, options={"folder": tempfile.gettempdir()})
    steps, host = Steps(Device(), arguments.lattice), random_links(arguments.lattice)
    heatbath_steps(steps)
    source_steps(steps, link_steps(steps, host))
    file_step(steps, host, Path(arguments.folder))


if __name__ == "__main__":
    main()
