"""The families of the benchmark in the order in which they are measured, and what is measured by default."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from stages.base.errors import InputError
from stages.lqcd.kernels.copy_bandwidth import keep_copy_bandwidth
from stages.lqcd.lattice.geometry import Lattice
from workflows.benchmarks import (
    algorithms,
    block_blas,
    end_to_end,
    link_construction,
    solver_iteration,
    staggered,
    wilson,
)
from workflows.benchmarks.machine import machine_of
from workflows.benchmarks.speed import Bench, Speed

FAMILIES: dict[str, Callable[[Bench], Iterator[Speed]]] = {
    "dslash": staggered.dslash_speeds,
    "normal": staggered.normal_speeds,
    "wilson": wilson.speeds,
    "blas": block_blas.speeds,
    "solver": solver_iteration.speeds,
    "multigrid": algorithms.multigrid_speeds,
    "eigen": algorithms.eigen_speeds,
    "links": link_construction.speeds,
    "mesons": algorithms.meson_speeds,
    "end-to-end": end_to_end.speeds,
}

LATTICES = {"cpu": (16, 16, 16, 32), "cuda": (32, 32, 32, 48)}
RUN_LATTICES = {"cpu": (8, 8, 8, 16), "cuda": (16, 16, 16, 32)}
"""Of multigrid, eigenvectors and the end-to-end run, which then take seconds."""

WIDTHS = {"cpu": (1, 16), "cuda": (1, 8, 16, 32)}


def bench_of(
    backend: str,
    extents: tuple[int, int, int, int] | None,
    widths: Sequence[int] | None,
    precisions: Sequence[str],
) -> Bench:
    """A bench with defaults that suit the backend; the copy bandwidth is measured here, and kept.

    Raises InputError for what does not exist or cannot be.
    """
    machine = machine_of(backend)
    asked = Bench(
        machine,
        Lattice(extents or LATTICES[backend]),
        Lattice(extents or RUN_LATTICES[backend]),
        tuple(dict.fromkeys(widths or WIDTHS[backend])),
        tuple(dict.fromkeys(precisions)),
        copy_bandwidth=1.0,
    )
    measured = machine.copy_bandwidth()
    keep_copy_bandwidth(backend, measured)
    return replace(asked, copy_bandwidth=measured)


def speeds(bench: Bench, families: Sequence[str]) -> Iterator[Speed]:
    """The lines of these families, as they are measured.

    Raises InputError where memory is short, and where there is nothing to measure.
    """
    count = 0
    for family in dict.fromkeys(families):
        try:
            for speed in FAMILIES[family](bench):
                count += 1
                yield speed
        except MemoryError as error:
            raise InputError(
                f"{family} does not fit into memory on {bench.lattice} with {max(bench.widths)} right-hand "
                f"sides: give a smaller --lattice or fewer --rhs ({error})"
            ) from error
    if not count:
        raise InputError(
            f"{bench.machine.backend} has no {' or '.join(bench.precisions)} precision of "
            f"{', '.join(families)}: give --precision single, double or both"
        )
