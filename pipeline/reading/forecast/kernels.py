"""Kernels that a process gets when it first runs a stage: how many, compiled or read, in what time.

A machine with records keeps compiled kernels on disk: a later process reads them. Kernels that hold for one
lattice alone are compiled anew for a lattice of which there are no records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
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
    def _of_processes(self) -> Mapping[tuple[str, Machine], Mapping[str, Table]]:
        """Kernels of each process in all chunks of a stage, by stage and machine."""
        tables: dict[tuple[str, Machine], dict[str, dict[str, Kernels]]] = {}
        for sample in self.samples:
            parts = [(part.stage, part.kernels) for part in sample.parts]
            for stage, kernels in [*parts, (OUTSIDE, sample.kernels)]:
                processes = tables.setdefault((stage, sample.machine), {})
                add(kernels, processes.setdefault(sample.process, {}))
        return tables

    @cached_property
    def _of_machines(self) -> Mapping[Machine, Table]:
        """Kernels of all stages of a machine."""
        tables: dict[Machine, dict[str, Kernels]] = {}
        for (_, machine), processes in self._of_processes.items():
            for table in processes.values():
                add(table, tables.setdefault(machine, {}))
        return tables

    def needed(self, stage: str, machine: Machine, same_lattice: bool) -> Kernels:
        """Kernels that a process gets for a stage. same_lattice: as that of some record there."""
        here = self._of_processes.get((stage, machine))
        if here is not None:
            anew = READ if same_lattice else COMPILED
            general = self._each(stage, machine, READ, self._number(here, ""))
            return general.plus(
                self._each(stage, machine, anew + FOR_LATTICE, self._number(here, FOR_LATTICE))
            )
        for (name, other), there in self._of_processes.items():
            if name == stage and other.backend == machine.backend:
                number = self._number(there, "") + self._number(there, FOR_LATTICE)
                return self._each(stage, machine, COMPILED, number)
        return Kernels()

    def _number(self, processes: Mapping[str, Table], end: str) -> float:
        """Kernels of either origin that a process gets."""
        none = Kernels()
        return median(
            sum(table.get(origin + end, none).number for origin in (COMPILED, READ))
            for table in processes.values()
        )

    def _each(self, stage: str, machine: Machine, kind: str, number: float) -> Kernels:
        """So many kernels of a kind: as the stage's records tell, or those of the machine."""
        own: dict[str, Kernels] = {}
        for table in self._of_processes.get((stage, machine), {}).values():
            add(table, own)
        origin = kind.removesuffix(FOR_LATTICE)
        everything = self._of_machines.get(machine, {})
        for table, name in ((own, kind), (everything, kind), (everything, origin)):
            if name in table:
                known = table[name]
                share = number / known.number
                return Kernels(round(number), share * known.seconds, round(share * known.nbytes))
        seconds, nbytes = EACH[machine.backend][origin]
        return Kernels(round(number), number * seconds, round(number * nbytes))
