"""The cost model: seconds of a stage's passes on a machine, as records of earlier chunks tell.

    t = starting (base + sum over passes of count * call) + moving (sum of count * bytes) / bandwidth
                                                          [+ loading * cold, the first time in a process]

Seconds in which kernels were compiled or read are not in it; they are forecast apart (`kernels`).

Base, call, bandwidth and cold are those of a machine without records. Of a stage that has records, all three
factors are the median of what its chunks took against that; about it, least squares tell them apart as far as
chunks of other sizes do. Deviations are relative to the larger of both: a chunk that something else disturbed
hardly counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from math import hypot, log
from operator import attrgetter
from statistics import median

import numpy as np

from pipeline.declare.node import Cost, Pass
from pipeline.reading.forecast.estimate import Estimate, Numbers, factors
from pipeline.reading.forecast.kernels import KernelModel
from pipeline.reading.forecast.memory import Memory
from pipeline.reading.forecast.power import regimes, watts
from pipeline.reading.forecast.samples import ChunkSample, Machine, Part, size_of
from pipeline.running.memory_advice import speed
from stages.base.compilation import Kernels

Passes = Sequence[tuple[float, float]]
"""Count and bytes of each."""

SCATTER = 0.1
"""Of t between equal chunks, before samples tell."""

WIDTHS = (2.0, 0.9, 0.9)
"""Of the factors of a stage about their common one: loading, starting, moving."""

UNSEEN, UNSEEN_WIDTHS = 0.7, (1.5, 1.0, 2.0)
"""Of log t of a stage whose only records are of another machine; of the factors, where there are none."""

OPENING = {"cpu": 0.02, "cuda": 1.0}
"""Seconds of a process before its first chunk, where no record tells."""

ELSEWHERE = 0.08
"""Of log t for each factor of e between a chunk's bytes and those of the nearest sample."""

COUNT_KNOWN, COUNT_RELATED, COUNT_UNKNOWN = 0.08, 0.3, 0.6
"""Of the logarithm of a pass's number: from equal settings, from others of its kind, from none."""

BESIDE = 2e-3
"""Seconds of a chunk beside its stages, where no record tells."""


PRIORS = {"cpu": (0.03, 3e-3, 3e-5, 6e9), "cuda": (0.3, 5e-3, 2e-4, 1.5e12)}
"""Before any record of a backend: seconds of the first time, fixed, and per pass; bytes a second."""


def prior(backend: str, passes: Passes, first: bool) -> Numbers:
    """Seconds in which libraries are loaded, kernels are started, and bytes move, before any record."""
    cold, base, call, bandwidth = PRIORS[backend]
    number = sum(count for count, _ in passes)
    return np.array([cold * first, base + call * number, _moved(passes) / bandwidth])


@dataclass(frozen=True)
class StageFit:
    """Factors of what a stage is expected to take on a backend, about a common one, and their covariance."""

    backend: str
    common: float
    factors: Numbers
    covariance: Numbers
    seen: tuple[float, ...] = ()
    """Bytes that all passes of each sample moved."""

    @classmethod
    def unseen(cls, machine: Machine) -> StageFit:
        """Fit of a stage without records."""
        covariance = np.diag(np.square(UNSEEN_WIDTHS))
        return cls(machine.backend, 1 / speed(machine.gpus), np.ones(3), covariance)

    @classmethod
    def of(cls, parts: Sequence[Part], backend: str) -> StageFit:
        """Fit one stage on one machine."""
        seconds = np.array([max(part.seconds, 1e-6) for part in parts])
        expected = np.array([prior(backend, part.passes, part.first) for part in parts])
        ratios = seconds / expected.sum(axis=1)
        later = [ratio for ratio, part in zip(ratios, parts, strict=True) if not part.first]
        common = float(np.median(later or ratios))
        usual = common * expected
        larger = np.maximum(seconds, usual.sum(axis=1))
        about, _ = factors(usual, seconds, SCATTER * larger, WIDTHS)
        scatter = max(SCATTER, 1.4826 * np.median(abs(usual @ about - seconds) / larger))
        seen = tuple({_moved(part.passes) for part in parts})
        return cls(backend, common, *factors(usual, seconds, scatter * larger, WIDTHS), seen)

    def seconds(self, passes: Passes, first: bool) -> Estimate:
        """Seconds for passes, with what records leave open and what a distance from them adds."""
        terms = prior(self.backend, passes, first)
        total, moved = float(terms @ self.factors), _moved(passes)
        away = min((abs(log(moved / each)) for each in self.seen if moved and each), default=0.0)
        spread = float(np.sqrt(terms @ self.covariance @ terms)) / total
        return Estimate(self.common * total, hypot(spread, ELSEWHERE * away))

    def worked(self, passes: Passes) -> Numbers:
        """Seconds of those in which bytes move, and in which kernels are started."""
        _, starting, moving = self.common * self.factors * prior(self.backend, passes, False)
        return np.array([moving, starting])


@dataclass(frozen=True)
class Model:
    """Samples, and the fits of stages on machines that follow from them."""

    samples: Sequence[ChunkSample]

    @cached_property
    def parts(self) -> Mapping[tuple[str, Machine], list[Part]]:
        """Samples by stage and machine."""
        table: dict[tuple[str, Machine], list[Part]] = {}
        for sample in self.samples:
            for part in sample.parts:
                table.setdefault((part.stage, sample.machine), []).append(part)
        return table

    @cached_property
    def stages(self) -> Mapping[str, list[ChunkSample]]:
        """Chunks of each stage that has any."""
        table: dict[str, list[ChunkSample]] = {}
        for sample in self.samples:
            table.setdefault(sample.stage, []).append(sample)
        return table

    def machines(self) -> list[Machine]:
        """Machines that there are records of, those with the most first."""
        return [machine for machine, _ in Counter(each.machine for each in self.samples).most_common()]

    def seconds(self, stage: str, machine: Machine, passes: Sequence[Pass], first: bool) -> Estimate:
        """Seconds of one stage's part of a chunk."""
        counts = [self.count(each) for each in passes]
        numbers = [(count.value, each.nbytes) for count, each in zip(counts, passes, strict=True)]
        there = self._nearest(stage, machine)
        fit = self._fits[stage, there] if there else StageFit.unseen(machine)
        return (
            fit.seconds(numbers, first)
            .times(self.factor(there or machine, machine))
            .times(Estimate(1.0, max((count.sigma for count in counts), default=0.0)))
        )

    def _nearest(self, stage: str, machine: Machine) -> Machine | None:
        """The machine itself, or another of its backend, that has records of a stage."""
        alike = [each for each in self.machines() if each.backend == machine.backend]
        alike = [machine, *sorted(alike, key=lambda each: each.kind != machine.kind)]
        return next((each for each in alike if (stage, each) in self.parts), None)

    def knows(self, stage: str, machine: Machine) -> bool:
        """True if there are records of a stage on a machine, with any number of its GPUs or threads."""
        nearest = self._nearest(stage, machine)
        return nearest is not None and nearest.kind == machine.kind

    @cached_property
    def _fits(self) -> Mapping[tuple[str, Machine], StageFit]:
        return {known: StageFit.of(parts, known[1].backend) for known, parts in self.parts.items()}

    def factor(self, one: Machine, other: Machine) -> Estimate:
        """Seconds on another machine per second on one, by the stages that both have."""
        if one == other:
            return Estimate(1.0)
        both = [stage for stage, machine in self.parts if machine == one and (stage, other) in self.parts]
        if not both:
            return Estimate(one.speed / other.speed, UNSEEN / 2 if one.kind == other.kind else UNSEEN)
        ratios = [self._fits[stage, other].common / self._fits[stage, one].common for stage in both]
        return Estimate(median(ratios), UNSEEN / 2)

    def count(self, each: Pass) -> Estimate:
        """Number of a pass: as expected, times what records say of those with the same settings."""
        if not each.counted:
            return Estimate(each.count)
        if ratios := self._ratios.get(each.alike):
            return Estimate(each.count * median(ratios), COUNT_KNOWN)
        related = [r for alike, rs in self._ratios.items() if alike[:3] == each.alike[:3] for r in rs]
        if related:
            return Estimate(each.count * median(related), COUNT_RELATED)
        return Estimate(each.count, COUNT_UNKNOWN)

    @cached_property
    def _ratios(self) -> dict[tuple[object, ...], list[float]]:
        """Real over expected numbers, by settings."""
        table: dict[tuple[object, ...], list[float]] = {}
        for part in chain(*self.parts.values()):
            for each, count in zip(part.expected, part.counts, strict=True):
                if each.counted and count != each.count:
                    table.setdefault(each.alike, []).append(count / each.count)
        return table

    def beside(self, stage: str, cost: Cost) -> float:
        """Seconds of a chunk beside its parts: reading and sums of arrays as the bytes are, and the rest."""
        if not (known := self.stages.get(stage)):
            return BESIDE
        size, rates = size_of(cost.device_memory, cost.work), [s.handling / s.size for s in known if s.size]
        handling = median(rates) * size if rates else median(sample.handling for sample in known)
        return self._rest(stage) + handling

    def _rest(self, stage: str) -> float:
        """Of no size, and not of the first chunk of a process if there are others."""
        known = self.stages[stage]
        later = [sample.rest for sample in known if sample.opening is None]
        return median(later or [sample.rest for sample in known])

    def opening(self, machine: Machine) -> float:
        """Seconds more of the first chunk of a process, beside those of its stages and their kernels."""
        known = [
            sample.opening + max(0.0, sample.rest - self._rest(sample.stage))
            for sample in self.samples
            if sample.machine.of_kernels == machine.of_kernels and sample.opening is not None
        ]
        return median(known or [OPENING[machine.backend]])

    def kernels_of(self, stage: str, machine: Machine, passes: Sequence[Pass]) -> Kernels:
        """Kernels that a process gets for a stage: a lattice is known by the bytes of passes."""
        parts, sizes = self.parts.items(), [each.nbytes for each in passes]
        known = [k for (of, on), k in parts if of == stage and on.of_kernels == machine.of_kernels]
        same = any([each.nbytes for each in part.expected] == sizes for part in chain(*known))
        return self._kernels.needed(stage, machine, same)

    @cached_property
    def _kernels(self) -> KernelModel:
        return KernelModel(self.samples)

    @cached_property
    def memory(self) -> Mapping[str, Memory]:
        """Memory of a worker of each backend."""
        samples = sorted(self.samples, key=attrgetter("finished"))
        return {name: Memory([s for s in samples if s.machine.backend == name]) for name in PRIORS}

    def worked(self, stage: str, machine: Machine, passes: Sequence[Pass]) -> Numbers:
        """Seconds of a stage's part of a chunk in which bytes move, and in which kernels are started."""
        if not (fit := self._fits.get((stage, machine))):
            return np.zeros(2)
        return fit.worked([(self.count(each).value, each.nbytes) for each in passes])

    @cached_property
    def watts(self) -> Mapping[Machine, Numbers]:
        """Power of each device that a counter measured, by regime."""
        drawn: dict[Machine, list[tuple[Numbers, float]]] = {}
        for sample in self.samples:
            if sample.joules is not None:
                worked = np.zeros(2)
                for part in sample.parts:
                    fit = self._fits[part.stage, sample.machine]
                    worked += regimes(fit.worked(part.passes), part.seconds)[:2]
                drawn.setdefault(sample.machine, []).append((regimes(worked, sample.seconds), sample.joules))
        return {machine: watts(chunks, machine.backend) for machine, chunks in drawn.items()}


def _moved(passes: Passes) -> float:
    return sum(count * nbytes for count, nbytes in passes)
