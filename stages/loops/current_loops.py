"""Stages that measure quark loops: stochastic ones per noise vector, and the exact trace on tiny lattices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline import At, Dims, Keyed, Resources, stage
from stages.base.errors import InputError
from stages.loops.costs import loops_cost
from stages.lqcd.dirac.application import staggered_application
from stages.lqcd.dirac.staggered import StaggeredDslash
from stages.lqcd.estimators.exact import exact_loops as exact_trace
from stages.lqcd.estimators.loop_witness import LoopWitness
from stages.lqcd.estimators.split_even import SplitEvenTrace
from stages.lqcd.estimators.stochastic import Loops, stochastic_loops
from stages.lqcd.estimators.trace import CurrentLinks, LoopTrace
from stages.lqcd.estimators.trace import current_links as choose_links
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.lattice.geometry import DIRECTIONS, EVEN, ODD, PARITIES
from stages.lqcd.noise import Dilution, Noise, noise_vectors
from stages.lqcd.noise.probing import probed
from stages.lqcd.solvers.deflation import DeflatedSolver, StaggeredSpace
from stages.lqcd.solvers.krylov import KrylovSolver
from stages.lqcd.solvers.named import Solve
from stages.shared.second_path import check_fields, other_kernels, record_repeated, seed_of, unchanged
from stages.shared.solve_record import record_solves

MASSES = ("light", "strange")
FLAVOURS = (*MASSES, "light - strange")
LIGHT, STRANGE, DIFFERENCE = range(3)
"""Places along `flavour`."""
LABELS = {"direction": DIRECTIONS, "parity": PARITIES}
FLAVOUR_LABELS = {"flavour": FLAVOURS, **LABELS}


@dataclass(frozen=True)
class Masses:
    """m of M = 2 m + D of both quarks, lattice units."""

    light: float
    strange: float


class CurrentLoops(NamedTuple):
    """Loops of each noise vector and probe, float64, lattice units, MILC's sign and normalisation.

    current: J_mu(t) = - sum_x Im tr { eta_mu U_mu(x) [D (4 m^2 - D^2)^-1](x + mu, x) }, direction x, y, z, t;
    condensate: psibar-psi = (2/V) tr M^-1 over the sites of a parity. The mean over probes is one estimate,
    whose error shows between noise vectors; without probing there is the one probe 0.
    """

    current: Annotated[np.ndarray, Dims("noise", "probe", "direction", "time")]
    condensate: Annotated[np.ndarray, Dims("noise", "probe", "parity")]


class FlavourLoops(NamedTuple):
    """`CurrentLoops` of all `FLAVOURS` on the same noise."""

    current: Annotated[np.ndarray, Dims("noise", "probe", "flavour", "direction", "time")]
    condensate: Annotated[np.ndarray, Dims("noise", "probe", "flavour", "parity")]


class ExactLoops(NamedTuple):
    """`CurrentLoops` without noise."""

    current: Annotated[np.ndarray, Dims("direction", "time")]
    condensate: Annotated[np.ndarray, Dims("parity")]


@stage(
    version="2",
    over=("config", "noise", "probe"),
    resources=Resources(device=1),
    keyed=Keyed(chunk=True, without=("max_iterations",)),
    labels=LABELS,
    cost=loops_cost,
)
def current_loops(
    dslash: StaggeredDslash,
    deflation: StaggeredSpace | None = None,
    *,
    at: At,
    mass: float,
    noise: Noise,
    solve: Solve,
    current_links: str = "thin",
    deflated_noise: bool = False,
) -> CurrentLoops:
    """One-link taste-singlet vector current and condensate from the noise vectors and probes of a chunk.

    mass: m of M = 2 m + D. noise: with the configuration's label. solve: of A = 4 m^2 - D^2, by a solver of
    `stages.lqcd.solvers.named.POSITIVE`; its tolerance is of |eta - A x| / |eta|. current_links: 'thin',
    'smeared' or 'fat'. deflation: speeds up the solves; with `deflated_noise` the loops are those of the
    remainder, without the part of its modes, which `stages.loops.low_mode_loops` gives exactly, and
    tolerances are relative to (1 - P) eta. Raises InputError, and NotConverged where a solve misses its
    tolerance.
    """
    settings = noise, solve, current_links, deflated_noise
    return CurrentLoops(*_noisy_loops(dslash, deflation, at, (mass,), *settings))


@stage(
    version="1",
    over=("config", "noise", "probe"),
    resources=Resources(device=1),
    keyed=Keyed(chunk=True, without=("max_iterations",)),
    labels=FLAVOUR_LABELS,
    cost=loops_cost,
)
def split_even_loops(
    dslash: StaggeredDslash,
    deflation: StaggeredSpace | None = None,
    *,
    at: At,
    masses: Masses,
    noise: Noise,
    solve: Solve,
    current_links: str = "thin",
    deflated_noise: bool = False,
) -> FlavourLoops:
    """Loops of two masses and the split-even estimate of their difference, from one solve of each mass.

    masses: m of M = 2 m + D; the other parameters as for `current_loops`, on the same sources. What is
    solved gives the plain difference as well: entries 0 - 1 along `flavour`, beside entry 2
    (`stages.lqcd.estimators.split_even`). Raises as `current_loops`.
    """
    settings = noise, solve, current_links, deflated_noise
    return FlavourLoops(*_noisy_loops(dslash, deflation, at, (masses.light, masses.strange), *settings))


def _noisy_loops(
    dslash: StaggeredDslash,
    deflation: StaggeredSpace | None,
    at: At,
    masses: Sequence[float],
    noise: Noise,
    solve: Solve,
    current_links: str,
    deflated_noise: bool,
) -> Iterator[np.ndarray]:
    """Current and condensate of a mass, or of two with their difference, on the noise of a chunk."""
    reports, links = SolveReports(at), CurrentLinks(dslash.links, current_links)
    common = (links, solve.of_positive(), reports, deflation, deflated_noise)
    traces = [loop_trace(dslash, mass, *common) for mass in masses]
    trace = SplitEvenTrace(*traces) if len(traces) > 1 else traces[0]
    vectors = sources(dslash, at, noise)
    with unchanged("noise vectors", vectors), links.unchanged():
        loops = stochastic_loops(trace, vectors, Dilution.parse(noise.dilution), solve.block, reports.block)
    _record(at, dslash, solve, *traces)
    check_loops(at, noise, current_links, vectors, *traces)
    return by_probe(loops, at)


@stage(version="1", over=("config", "noise", "probe"), transient=True)
def flavour_loops(light: CurrentLoops, strange: CurrentLoops, *, at: At) -> FlavourLoops:
    """Light, strange, and their plain difference on the same noise."""
    pairs = zip(light, strange, strict=True)
    return FlavourLoops(*(np.stack([a, b, a - b], axis=2) for a, b in pairs))


@stage(
    version="1",
    over=("config",),
    resources=Resources(device=1),
    keyed=Keyed(without=("max_iterations",)),
    labels=LABELS,
    cost=loops_cost,
)
def exact_loops(
    dslash: StaggeredDslash,
    *,
    at: At,
    mass: float,
    solve: Solve,
    current_links: str = "thin",
) -> ExactLoops:
    """Exact loops, by a point source on every site and colour; parameters as for `current_loops`.

    Raises InputError above 6^4 sites.
    """
    reports = SolveReports(at)
    links = CurrentLinks(dslash.links, current_links)
    trace = loop_trace(dslash, mass, links, solve.of_positive(), reports)
    with links.unchanged():
        loops = exact_trace(trace, dslash.xp, solve.block, reports.block)
    _record(at, dslash, solve, trace)
    return ExactLoops(loops.current[0], loops.density[0])


def loop_trace(
    dslash: StaggeredDslash,
    mass: float,
    links: CurrentLinks,
    solver: KrylovSolver,
    reports: SolveReports,
    deflation: StaggeredSpace | None = None,
    deflated_noise: bool = False,
) -> LoopTrace:
    """The trace of one mass, in double precision outside; deflated solves, and traces, if wanted."""
    if deflated_noise and deflation is None:
        raise InputError("deflated noise needs the modes that it is orthogonal to: give a deflation")
    deflated = solver if deflation is None else DeflatedSolver(solver, deflation)
    projection = deflation if deflated_noise else None
    outer = dslash.astype(np.complex128)
    witness = LoopWitness(seed_of(reports.at)) if reports.at.again else None
    return LoopTrace(outer, links, mass, deflated, projection, iterated=reports.iteration, witness=witness)


def check_loops(
    at: At, noise: Noise, current_links: str, vectors: Sequence[Array], *traces: LoopTrace
) -> None:
    """Check what witnesses have seen, by other kernels on the host, where the chunk is one to be checked.

    Links are made of the configuration anew, and the noise is drawn again. Raises WrongResultError.
    """
    if at.again is None:
        return
    with other_kernels(at):
        dslash = at.again("dslash")
        links = choose_links(dslash.links, current_links)
        for fields, again in zip(vectors, sources(dslash, at, noise), strict=True):
            check_fields("noise vectors", fields, again)
        for trace in traces:
            if trace.witness:
                trace.witness.check(dslash, links, trace.mass)
    solved = sum(trace.statistics.rhs for trace in traces)
    record_repeated(at, f"A x and D x of {solved} solutions, a contraction, the noise")


def sources(dslash: StaggeredDslash, at: At, noise: Noise) -> list[Array]:
    """Noise vectors times probes of a chunk, even and odd sites, ``[site, 3, noise * probe]`` each."""
    lattice, label = dslash.lattice, str(at.one("config"))
    indices, xp = [int(index) for index in at["noise"]], dslash.xp
    vectors = (
        noise_vectors(lattice, parity, label, noise.seed, indices, noise.kind, xp=xp)
        for parity in (EVEN, ODD)
    )
    return [probed(fields, lattice, parity, probes(at)) for parity, fields in enumerate(vectors)]


def probes(at: At) -> list[int]:
    """The probes of a chunk: probe 0 is the noise itself, and is what one gets who does not probe."""
    return [int(number) for number in at["probe"]] if "probe" in at else [0]


def by_probe(loops: Loops, at: At) -> Iterator[np.ndarray]:
    """Arrays ``[noise * probe, ...]`` as ``[noise, probe, ...]``."""
    return (array.reshape(-1, len(probes(at)), *array.shape[1:]) for array in loops)


class SolveReports:
    """Progress of a chunk's solves: blocks done, and of the block in hand iterations and largest residual."""

    def __init__(self, at: At) -> None:
        self.at, self.done, self.total = at, 0, 1

    def block(self, done: int, total: int) -> None:
        """Report that a block is done."""
        self.done, self.total = done, total
        self.at.progress(done, total)

    def iteration(self, number: int, residuals: NDArray[np.float64]) -> None:
        """Report an iteration of the block in hand."""
        self.at.progress(self.done, self.total, iterations=number, residual=float(residuals.max()))


def _record(at: At, dslash: StaggeredDslash, solve: Solve, *traces: LoopTrace) -> None:
    """Keeps with the chunk how it was solved; traces: of one mass each."""
    statistics = [trace.statistics for trace in traces]
    application = partial(staggered_application, dslash)
    record_solves(at, solve, *statistics, application=application, extents=list(dslash.lattice.extents))
