"""Generalised perambulators: quark lines of distillation with a current on their way (arXiv:1501.07457).

    G(t) = V^dag(t_f) M^-1 [Gamma e^{ipx} D](t) M^-1 V(t_0)

V: the eigenvectors of a time slice at each of four spins. From gamma5 M gamma5 = M^dag the left factor is

    V^dag(t_f) M^-1 = gamma5 [M^-1 V(t_f)]^dag gamma5,

with a first gamma5 on the open spin of the sink, where it is a sign, as it is diagonal; of M(mu) by solutions
with M(-mu), the other flavour of twisted quarks. So G consists of
current insertions between solutions from t_f and from t_0, with the Dirac matrices gamma5 Gamma.

D goes along the links that M hops along, smeared where those are and without anisotropy: the current is one
of the quark fields of the action, not of the smeared fields at the ends. In space these links have no signs
of boundaries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from stages.base.errors import InputError, check_whole
from stages.lqcd.dirac.wilson import WilsonOperator
from stages.lqcd.distillation.columns import FullColumns
from stages.lqcd.distillation.currents import current_insertions
from stages.lqcd.distillation.distillation_sources import distillation_sources
from stages.lqcd.distillation.insertions import Insertions
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.kernels.gamma import GAMMA5, SPINS
from stages.lqcd.kernels.transfer import Stored, copy_to_host
from stages.lqcd.solvers.even_odd import Progress, solved
from stages.lqcd.solvers.solution import Solver, SolveStatistics, column_blocks
from stages.lqcd.spectroscopy.gammas import DIRAC


@dataclass(frozen=True)
class Ends:
    """The ends of quark lines: sources, and sinks `separations` slices later, around the lattice.

    one_flavour: whether a slice's solutions serve as those of a source and of a sink, as without a twist.

    Raises InputError for separations that are not 1 to T - 1, for one twice, and for none.
    """

    sources: FullColumns
    separations: tuple[int, ...]
    one_flavour: bool = True

    def __post_init__(self) -> None:
        extent = self.sources.time_extent
        if not self.separations or len(set(self.separations)) < len(self.separations):
            raise InputError(
                f"separations of source and sink are at least one, and each once, got {self.separations}"
            )
        for separation in self.separations:
            check_whole("a separation", separation, 0)
            if not 0 < separation < extent:
                raise InputError(
                    f"a separation of {separation} between source and sink is outside {extent} time slices: "
                    f"take 1 to {extent - 1}"
                )

    @cached_property
    def sinks(self) -> NDArray[np.int64]:
        """Slices of the sinks ``[source, separation]``."""
        return np.add.outer(self.sources.source_times, self.separations) % self.sources.time_extent

    @cached_property
    def times(self) -> tuple[int, ...]:
        """Slices that are solved for: those of sources, then those of sinks; of one flavour each once."""
        sources, sinks = (
            dict.fromkeys(each) for each in (self.sources.source_times, self.sinks.ravel().tolist())
        )
        return (*sources, *(time for time in sinks if not (self.one_flavour and time in sources)))

    def solved_at(self, times: Sequence[int], sinks: bool) -> list[int]:
        """The numbers among `times` of slices of sources or of sinks."""
        last = len(self.times) - 1
        return [last - self.times[::-1].index(t) if sinks else self.times.index(t) for t in times]

    def lines_to(self, sink: int) -> list[tuple[int, int]]:
        """(number of a source, number of a separation) of the lines that end on a slice."""
        return [(int(n), int(m)) for n, m in np.argwhere(self.sinks == sink)]


def generalised_perambulators(
    M: WilsonOperator,
    vectors: Stored,
    ends: Ends,
    insertions: Insertions,
    method: Solver,
    block: int,
    device_bytes: Callable[[], int],
    progress: Progress = lambda *_: None,
    sink_method: Solver | None = None,
) -> tuple[NDArray[np.complex128], SolveStatistics]:
    """G with all sixteen Dirac matrices, on the host, and what was solved, the slices `ends.times` in turn.

    The result is complex128 ``[source, separation, time, gamma, momentum, displacement, spin and eigenvector
    of the sink, of the source]``, time that of the lattice, gamma as `stages.lqcd.spectroscopy.gammas.NAMES`.
    vectors: ``[time, parity, site, colour, eigenvector]`` anywhere. Solutions from the sources wait in the
    host's memory; those from a sink are multiplied with them, `block` columns at a time, and dropped.
    device_bytes: says how much a product may take (`stages.lqcd.distillation.currents`). sink_method: of
    twisted quarks, that for the other flavour. Raises what the method raises, and InputError.
    """
    statistics, k = SolveStatistics(), ends.sources.eigenvectors
    parts = column_blocks(SPINS * k, block)

    def solutions(time: int, M: WilsonOperator, method: Solver) -> Iterator[Array]:
        columns = FullColumns((time,), ends.sources.time_extent, k)
        for part in parts:
            b = distillation_sources(vectors, M.lattice, columns, part, M.xp)
            yield solved(M, b, method, statistics, part.start)
            progress(len(statistics.residual), len(ends.times) * len(parts))

    sources, gammas = ends.sources.source_times, [GAMMA5 @ gamma for gamma in DIRAC.values()]
    source_solutions = {
        time: [copy_to_host(x) for x in solutions(time, M, method)] for time in dict.fromkeys(sources)
    }
    known = source_solutions if ends.one_flavour else {}
    back = (M, method) if sink_method is None else (M.other_flavour, sink_method)
    counts = (len(gammas), len(insertions.momenta), len(insertions.displacements))
    result = np.empty((*ends.sinks.shape, M.lattice.time_extent, *counts, SPINS * k, SPINS * k), complex)
    for sink in ends.times[len(source_solutions) - len(known) :]:
        lines = ends.lines_to(sink)
        partners = [
            (line, *partner)
            for line in lines
            for partner in zip(parts, source_solutions[sources[line[0]]], strict=True)
        ]
        for rows, left in zip(parts, known.get(sink) or solutions(sink, *back), strict=True):
            for line, columns, right in partners:
                elements = current_insertions(
                    left, right, M.links.links, insertions, gammas, M.xp, device_bytes()
                )
                result[*line, ..., rows.start : rows.stop, columns.start : columns.stop] = elements
    result *= np.repeat(np.diag(GAMMA5).real, k)[:, None]
    return result, statistics
