"""Parts that the measuring scripts share: options, tables in Markdown, operators on quenched links."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from types import MappingProxyType, ModuleType
from typing import Any, TypeVar

import numpy as np

from pipeline.store.provenance import buses
from pipeline.worker.energy import device_meter, energy_meter
from stages.base.gpus import GPUS_PER_WORKER, visible_gpus
from stages.lqcd.dirac.staggered import SquaredDslash, StaggeredDslash
from stages.lqcd.dirac.wilson import WilsonDslash, WilsonOperator
from stages.lqcd.eigen.block_lanczos import BlockLanczos
from stages.lqcd.eigen.eigenpairs import Eigenpairs
from stages.lqcd.eigen.stored_vectors import searched_in_single
from stages.lqcd.gauge.heatbath import thermalised
from stages.lqcd.gauge.hisq import hisq_links
from stages.lqcd.gauge.wilson_links import wilson_links
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.kernels.link_forms import Packing
from stages.lqcd.lattice.geometry import Lattice
from workflows.benchmarks.machine import Machine, Work, machine_of

T = TypeVar("T")

SMALL, LARGE = (8, 8, 8, 16), (32, 32, 32, 48)
OVERRELAXATION = 4


def arguments_of(
    description: str | None,
    *positional: str,
    lattice: tuple[int, ...] | None = None,
    machine: str | None = None,
    options: Mapping[str, object] = MappingProxyType({}),
) -> argparse.Namespace:
    """Parsed arguments of the command line, by a script's own defaults.

    Args:
        description: text of `--help`.
        positional: names of what has no dashes.
        lattice: extents unless `--lattice X Y Z T` are given; the result has a Lattice. None: no such option.
        machine: backend unless `--backend` is given; the result has a Machine. None: no such option.
        options: defaults of further options. A list takes one or more values, False is a flag, a tuple the
            choices with the default in front, a type what has no default.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name in positional:
        parser.add_argument(name)
    if lattice is not None:
        extents: dict[str, Any] = {"nargs": 4, "default": lattice, "metavar": ("X", "Y", "Z", "T")}
        parser.add_argument("--lattice", type=int, **extents)
    if machine is not None:
        parser.add_argument("--backend", choices=("cpu", "cuda"), default=machine, dest="machine")
    for name, default in options.items():
        parser.add_argument(f"--{name.replace('_', '-')}", **_option(default))
    arguments = parser.parse_args()
    if lattice is not None:
        arguments.lattice = Lattice(tuple(arguments.lattice))
    if machine is not None:
        arguments.machine = machine_of(arguments.machine)
    return arguments


def _option(default: Any) -> dict[str, Any]:
    if default is False:
        return {"action": "store_true"}
    if isinstance(default, type):
        return {"type": default}
    described = {"default": default, "help": "default: %(default)s"}
    if isinstance(default, tuple):
        return {"choices": default, "default": default[0]}
    if isinstance(default, list):
        return {"type": type(default[0]), "nargs": "+", **described}
    return {"type": type(default), **described}


def host_seconds(machine: Machine, work: Work, calls: int = 100) -> float:
    """Time that the host needs to start a call."""
    work()
    machine.wait()
    start = time.perf_counter()
    for _ in range(calls):
        work()
    elapsed = time.perf_counter() - start
    machine.wait()
    return elapsed / calls


def metered(backend: str, work: Callable[[], T]) -> tuple[T, float | None]:
    """Result of a call of seconds, and the joules drawn meanwhile, None where nothing measures them.

    The counter of an H200 moves every 100 ms.
    """
    meter = energy_meter(backend)
    before = meter() if meter else 0.0
    result = work()
    return result, meter() - before if meter else None


def timed(machine: Any, work: Callable[[], T]) -> tuple[T, float, float | None]:
    """The result, seconds and joules of a call of seconds."""
    start = time.perf_counter()

    def waited() -> T:
        result = work()
        machine.wait()
        return result

    result, joules = metered(machine.backend, waited)
    return result, time.perf_counter() - start, joules


def searched_twice(
    given: argparse.Namespace, dslash: StaggeredDslash, block: int, once: bool = False
) -> tuple[Eigenpairs, float, float | None]:
    """The most `vectors` to `lanczos`, in the precision in which a run searches those stored in `precision`.

    They, their seconds and joules are of a second search; seconds of the first one, which compiles kernels,
    come between. With `once` the first one is a single cycle with a filter of low degree.
    """
    single = searched_in_single(given.precision, given.lanczos)
    B = SquaredDslash(dslash.astype(np.complex64) if single else dslash)
    lanczos = BlockLanczos(max(given.vectors), block, given.lanczos)
    warming = replace(lanczos, vectors=block, degree=8, max_restarts=1) if once else lanczos
    first = warming.solve(B, on_failure="return").seconds
    pairs, joules = metered(given.machine.backend, lambda: lanczos.solve(B))
    return pairs, first, joules


def stored(pairs: Eigenpairs, precision: str) -> Array:
    """Vectors as solves take those that are stored in 'single' or 'double' precision."""
    return pairs.vectors.astype(np.complex64 if precision == "single" else np.complex128)


class PrintedTable:
    """A Markdown table whose lines are printed as they are measured."""

    def __init__(self, *columns: str) -> None:
        print(f"\n{_line(columns)}\n{_line(['---'] * len(columns))}", flush=True)

    def add(self, *cells: object) -> None:
        """A line: None is "-", floats have four digits."""
        print(_line(map(_text, cells)), flush=True)


def _line(cells: Any) -> str:
    return f"| {' | '.join(cells)} |"


def _text(cell: object) -> str:
    if cell is None:
        return "-"
    return f"{cell:.4g}" if isinstance(cell, float) else str(cell)


def devices_of(given: argparse.Namespace) -> AbstractContextManager[Any]:
    """A block in which fields lie on as many GPUs as are wanted, from here on the process' own.

    Joules are those of all.
    """
    if given.machine.backend == "cpu":
        return nullcontext()
    from stages.lqcd.kernels.cuda.devices.group import spread_over

    os.environ[GPUS_PER_WORKER] = str(given.gpus)
    devices = visible_gpus()
    given.machine.meters = [meter for meter in map(device_meter, buses()) if meter]
    return spread_over(given.lattice, devices)


def quenched(
    lattice: Lattice, label: str, *, beta: float, seed: int, sweeps: int, xp: ModuleType = np
) -> Array:
    """Thin links ``[mu, parity, site, 3, 3]`` of one configuration, by heat bath from a hot start."""
    return thermalised(lattice, beta, seed, label, sweeps, OVERRELAXATION, xp=xp)


def staggered(thin: Array, lattice: Lattice, block: int = 64) -> StaggeredDslash:
    """D of HISQ links, antiperiodic in time; its links packed for blocks of so many rhs."""
    links = hisq_links(thin, lattice, boundary="antiperiodic", naik_epsilon=0.0)
    return StaggeredDslash(links, packing=Packing(block=block))


def wilson(thin: Array, lattice: Lattice, mass: float, csw: float, block: int = 16) -> WilsonOperator:
    """The Wilson-clover operator, antiperiodic in time; its links packed for blocks of so many rhs."""
    links = wilson_links(thin, lattice, boundary="antiperiodic", csw=csw)
    return WilsonOperator(WilsonDslash(links, packing=Packing(block=block)), mass)
