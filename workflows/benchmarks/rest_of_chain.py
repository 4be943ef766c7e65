"""Time everything of a measurement but its solves on the device at hand, step by step.

`python -m workflows.benchmarks.rest_of_chain [--lattice X Y Z T] [--folder F]`.

Prints a Markdown table: the first call (compilation and tables included), the median of the next ones, and
the peak of device memory during the step. The file is written to the folder and read back from the page
cache.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import cupy
import numpy as np

from pipeline import At
from stages.ensemble.configuration import file_configuration, heatbath_configuration
from stages.lqcd.dirac.doubled_links import doubled_links
from stages.lqcd.dirac.staggered import StaggeredDslash
from stages.lqcd.gauge import hisq
from stages.lqcd.gauge.fat_links import Paths, fat_links, long_links
from stages.lqcd.gauge.heatbath import thermalised
from stages.lqcd.gauge.phases import with_boundary, with_phases
from stages.lqcd.gauge.reunitarise import to_su3, to_u3
from stages.lqcd.kernels.cuda import heatbath, hisq_dslash, one_link_current, staple
from stages.lqcd.kernels.transfer import copy_to_host, to_backend, to_device
from stages.lqcd.lattice.formats import write_ildg
from stages.lqcd.lattice.geometry import Lattice
from stages.lqcd.noise import Dilution, dilute, noise_vectors

BLOCK = 16
"""Right-hand sides at a time."""


def timed(work: Callable[[], object], repeats: int = 3) -> tuple[float, float, float]:
    """(seconds of the first call, median of the next ones, peak of device memory in GB beyond the start)."""
    pool = cupy.get_default_memory_pool()
    first = wall(work)
    pool.free_all_blocks()
    before = pool.used_bytes()
    later = [wall(work) for _ in range(repeats)]
    return first, median(later), (pool.total_bytes() - before) / 1e9


def wall(work: Callable[[], object]) -> float:
    device = cupy.cuda.Device()
    device.synchronize()
    start = perf_counter()
    work()
    device.synchronize()
    return perf_counter() - start


def ten_times(work: Callable[[], object]) -> None:
    for _ in range(10):
        work()


class Table:
    """Steps as they are timed."""

    def __init__(self) -> None:
        self.rows = ["| step | first call (s) | next calls (ms) | GB/s | peak (GB) |", "|---" * 5 + "|"]

    def add(self, name: str, work: Callable[[], object], moved: float = 0, repeats: int = 3) -> None:
        """moved: bytes to relate the time to, if any."""
        first, later, peak = timed(work, repeats)
        rate = f"{moved / later / 1e9:.1f}" if moved else ""
        self.rows.append(f"| {name} | {first:.2f} | {1e3 * later:.2f} | {rate} | {peak:.2f} |")
        print(self.rows[-1], flush=True)


def link_steps(table: Table, host: np.ndarray, lattice: Lattice) -> hisq.StaggeredLinks:
    links = cupy.asarray(host)
    table.add("links: host to device, pageable", lambda: cupy.asarray(host), host.nbytes)
    table.add("links: host to device, in pieces", lambda: to_device(host), host.nbytes)
    table.add("links: device to host, pageable", links.get, host.nbytes)
    table.add("links: device to host, in pieces", lambda: copy_to_host(links), host.nbytes)
    options: dict[str, Any] = {"boundary": "antiperiodic", "naik_epsilon": 0.0}
    table.add("HISQ links", lambda: hisq.hisq_links(links, lattice, **options))
    table.add("- to_su3", lambda: to_su3(links), 2 * links.nbytes)
    thin = with_boundary(to_su3(links).links, lattice, "antiperiodic")
    table.add("- with_boundary", lambda: with_boundary(links, lattice, "antiperiodic"))
    level_one = fat_links(thin, lattice, Paths(1 / 8, 1 / 16, 1 / 64, 1 / 384))
    out, one = cupy.zeros_like(thin[0]), thin[0]
    table.add(
        "- add_staple x 10",
        lambda: ten_times(lambda: staple.add_staple(out, one, thin[3], lattice, 0, 3, 0.1)),
        40 * one.nbytes,
    )
    table.add(
        "- weighted_sum x 10",
        lambda: ten_times(lambda: staple.weighted_sum(0.1, one, 0.3, out)),
        30 * one.nbytes,
    )
    table.add("- fat_links", lambda: fat_links(thin, lattice, Paths(1 / 8, 1 / 16, 1 / 64, 1 / 384, -1 / 8)))
    table.add("- to_u3", lambda: to_u3(level_one), 2 * links.nbytes)
    table.add("- long_links", lambda: long_links(thin, lattice, 0.1), 2 * links.nbytes)
    table.add("- with_phases", lambda: with_phases(thin, lattice, out=thin), 2 * links.nbytes)
    return hisq.hisq_links(links, lattice, **options)


def source_steps(table: Table, links: hisq.StaggeredLinks) -> None:
    lattice = links.lattice
    dilution = Dilution(displacement=2)
    block = lattice.half_volume * 3 * BLOCK * 16
    for kind in ("z2", "u1", "gaussian"):
        table.add(
            f"noise {kind}, {BLOCK} vectors, one parity",
            lambda: noise_vectors(lattice, 0, "a", 7, range(BLOCK), kind, xp=cupy),  # noqa: B023
            block,
        )
    noise = noise_vectors(lattice, 0, "a", 7, range(8), "z2", xp=cupy)
    table.add("partition by displacement", lambda: dilution.partition(lattice, 0))
    partition = dilution.partition(lattice, 0)
    table.add("dilute a block", lambda: dilute(noise, partition, range(8, 8 + BLOCK)), block)
    for dtype in (np.complex128, np.complex64):
        name = np.dtype(dtype).name
        table.add(f"doubled links {name}, one parity", lambda: doubled_links(links, 0, dtype))  # noqa: B023
        table.add(f"operator {name}", lambda: StaggeredDslash(links, dtype)._packed)  # noqa: B023
    current = cupy.ascontiguousarray(links.thin[:, 0])
    x, y = dilute(noise, partition, range(BLOCK)), dilute(noise, partition, range(BLOCK))
    table.add(
        "one_link_current",
        lambda: one_link_current.one_link_current(current, x, y, lattice, 0),
        2 * block + current.nbytes,
    )
    packed = hisq_dslash.pack(doubled_links(links, 0, np.complex128), lattice, 0)
    out = cupy.empty_like(x)
    table.add("for scale: dslash complex128", lambda: hisq_dslash.hisq_dslash(packed, x, out))


def file_steps(table: Table, host: np.ndarray, lattice: Lattice, folder: Path) -> None:
    path = folder / "a.ildg"
    write_ildg(path, host, lattice, 64)
    at = At(config="a", backend="cuda")
    read = lambda: to_backend(  # noqa: E731
        file_configuration(at=at, path=path, extents=lattice.extents).links, "cuda"
    )
    table.add("file to device, verified", read, host.nbytes, 2)


def heatbath_steps(table: Table, lattice: Lattice) -> None:
    """Sweeps by their parts, then a start as the stage makes it; fractions count every link field once."""
    links = thermalised(lattice, 6.0, 3, "a", 1, 0, xp=cupy)
    moved = 9 * links.nbytes
    table.add("heat-bath sweep", lambda: heatbath.heat_bath(links, lattice, 6.0, (5, 7), 9), moved)
    table.add("over-relaxation sweep", lambda: heatbath.over_relax(links, lattice), moved)
    options: dict[str, Any] = {
        "extents": lattice.extents,
        "beta": 6.0,
        "seed": 3,
        "sweeps": 50,
        "overrelaxation": 4,
    }
    at = At(config="a", backend="cuda")
    table.add(
        "stage: 50 sweeps, each with 4 of over-relaxation",
        lambda: heatbath_configuration(at=at, **options),
        0,
        1,
    )
    print(f"plaquette {at.statistics['plaquette']:.5f}")
    at, small = At(config="a", backend="cpu"), Lattice((16, 16, 16, 16))
    options |= {"extents": small.extents, "sweeps": 5}
    table.add(
        f"the same on the CPU, {small}, 5 sweeps", lambda: heatbath_configuration(at=at, **options), 0, 1
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--lattice", nargs=4, type=int, default=(32, 32, 32, 48), metavar=("X", "Y", "Z", "T")
    )
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    arguments = parser.parse_args()
    lattice, table = Lattice(tuple(arguments.lattice)), Table()
    heatbath_steps(table, lattice)
    rng = np.random.default_rng(5)
    matrices = rng.normal(size=(1 << 16, 3, 3)) + 1j * rng.normal(size=(1 << 16, 3, 3))
    some = np.linalg.qr(matrices)[0]
    some[..., 0] /= np.linalg.det(some)[:, None]
    host = some[rng.integers(len(some), size=(4, 2, lattice.half_volume))]
    source_steps(table, link_steps(table, host, lattice))
    file_steps(table, host, lattice, arguments.folder)
    print("\n".join(table.rows))


if __name__ == "__main__":
    main()
