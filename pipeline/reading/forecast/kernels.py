"""Kernels that a process gets when it first runs a stage: how many, compiled or read, in what time.

A machine with records keeps compiled kernels on disk: a later process reads them. Kernels that hold for one
lattice alone are compiled anew for a lattice of which there are no records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from statistics import median

from pipeline.reading.forecast.samples import ChunkSample, Machine
from stages.base.compilation import COMPILED, FOR_LATTICE, READ, Kernels, add

OUTSIDE = ""
"""In place of a stage: kernels that a chunk needs beside its stages, for checksums."""

EACH = {
    "cpu": {COMPILED: (2.0, 3e6), READ: (0.01, 3e5)},
    "cuda": {COMPILED: (0.3, 2e6), READ: (0.005, 1e5)},
}
"""Seconds and bytes on the host of a kernel, where no record tells."""

Table = Mapping[str, Kernels]


@dataclass(frozen=True)
class KernelModel:
    """Numbers and seconds of kernels, from samples."""

    samples: Sequence[ChunkSample]

    @cached_property
    def _processes(self) -> Mapping[tuple[str, Machine], Mapping[str, Table]]:
        """Kernels of each process in all chunks of a stage, by stage and machine."""
        tables: dict[tuple[str, Machine], dict[str, dict[str, Kernels]]] = {}
        for sample in self.samples:
            parts = [(part.stage, part.kernels) for part in sample.parts]
            for stage, kernels in [*parts, (OUTSIDE, sample.kernels)]:
                processes = tables.setdefault((stage, sample.machine.of_kernels), {})
                add(kernels, processes.setdefault(sample.process, {}))
        return tables

    def needed(self, stage: str, machine: Machine, same_lattice: bool) -> Kernels:
        """Kernels that a process gets for a stage. same_lattice: as that of some record there."""
        machine = machine.of_kernels
        if here := self._processes.get((stage, machine)):
            own, anew = _total(here.values()), READ if same_lattice else COMPILED
            general = self._each(own, machine, READ, _number(here, ""))
            return general.plus(self._each(own, machine, anew + FOR_LATTICE, _number(here, FOR_LATTICE)))
        for (name, other), there in self._processes.items():
            if name == stage and other.backend == machine.backend:
                number = _number(there, "") + _number(there, FOR_LATTICE)
                return self._each({}, machine, COMPILED, number)
        return Kernels()

    def _each(self, own: Table, machine: Machine, kind: str, number: float) -> Kernels:
        """So many kernels of a kind: as the stage's own records tell, or those of the machine."""
        tables = (there.values() for (_, on), there in self._processes.items() if on == machine)
        origin, everything = kind.removesuffix(FOR_LATTICE), _total(chain(*tables))
        known = own.get(kind) or everything.get(kind) or everything.get(origin)
        total, seconds, nbytes = known or (1, *EACH[machine.backend][origin])
        return Kernels(round(number), number * seconds / total, round(number * nbytes / total))


def _total(tables: Iterable[Table]) -> Table:
    total: dict[str, Kernels] = {}
    for table in tables:
        add(table, total)
    return total


def _number(processes: Mapping[str, Table], end: str) -> float:
    """Kernels of either origin that a process gets."""
    none = Kernels()
    return median(
        sum(table.get(origin + end, none).number for origin in (COMPILED, READ))
        for table in processes.values()
    )
