"""The cost model: seconds of a stage's passes on a machine, fitted to samples with a prior.

    t = base + sum over passes of count (call + bytes * rate)    [+ cold, the first time in a process]

Seconds in which kernels were compiled or read are not in it; they are forecast apart (`kernels`).

Logarithms of base, cold, and each pass's call and rate have normal priors: those of a machine without
records, where a pass moves its bytes at a part of the memory's bandwidth. Residuals of log t are fitted
together with them, robustly, for a machine does other things, too. Where samples of one size cannot tell a
call from bytes, the prior divides it; samples of other sizes overrule it. The uncertainty is that of the
parameters (the Gauss-Newton Hessian) and the scatter of the samples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import hypot

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from pipeline.declare.node import Cost, Pass
from pipeline.reading.forecast.kernels import KernelModel
from pipeline.reading.forecast.power import Power, Regimes, power
from pipeline.reading.forecast.samples import ChunkSample, Machine, Part, gpus
from pipeline.running.gpu_shares import speed
from stages.base.compilation import Kernels

SCATTER = 0.1
"""Of log t between equal chunks, before samples tell."""


@dataclass(frozen=True)
class Prior:
    """Seconds before any record of a backend: fixed, first time, per pass, and bytes a second."""

    base: float
    cold: float
    call: float
    bandwidth: float


PRIORS = {
    "cpu": Prior(3e-3, 0.03, 3e-5, 6e9),
    "cuda": Prior(5e-3, 0.3, 2e-4, 1.5e12),
}

WIDTHS = {"base": 0.7, "cold": 1.5, "call": 1.0, "rate": 2.0}
"""Standard deviations of the logarithms of the prior."""

OPENING = {"cpu": 0.02, "cuda": 1.0}
"""Seconds of a process before its first chunk, where no record tells."""

UNSEEN = 0.7
"""Of log t of a stage, where its only records are of another machine."""

ELSEWHERE = 0.08
"""Of log t for each factor of e between a chunk's bytes and those of the nearest sample."""

COUNT_KNOWN, COUNT_RELATED, COUNT_UNKNOWN = 0.08, 0.3, 0.6
"""Of the logarithm of a pass's number: from equal settings, from others of its kind, from none."""


@dataclass(frozen=True)
class Estimate:
    """A positive number with the standard deviation of its logarithm."""

    value: float
    sigma: float = 0.0


def added(parts: Sequence[Estimate]) -> Estimate:
    """The sum of independent estimates."""
    total = sum(each.value for each in parts)
    spread = hypot(*(each.value * each.sigma for each in parts)) if parts else 0.0
    return Estimate(total, spread / total if total else 0.0)


@dataclass(frozen=True)
class StageFit:
    """Parameters of a stage on a machine: logarithms and their covariance."""

    names: tuple[str, ...]
    """Of the passes."""
    theta: NDArray[np.float64]
    covariance: NDArray[np.float64]
    seen: tuple[float, ...] = ()
    """Logarithms of the bytes that all passes of the samples moved."""

    def seconds(self, passes: Sequence[tuple[str, float, float]], first: bool) -> Estimate:
        """Seconds for passes (name, count, bytes)."""
        features = _features(self.names, passes, first)
        value, gradient = _log_model(self.theta, features)
        moved = np.log(sum(count * nbytes for _, count, nbytes in passes) or 1.0)
        away = min((abs(moved - each) for each in self.seen), default=0.0)
        sigma = float(np.sqrt(gradient @ self.covariance @ gradient + (ELSEWHERE * away) ** 2))
        return Estimate(float(np.exp(value)), sigma)

    def regimes(self, passes: Sequence[tuple[str, float, float]]) -> Regimes:
        """Seconds of those in which bytes move, and in which kernels are started."""
        terms = (_features(self.names, passes, False) * np.exp(self.theta))[2:]
        return Regimes(float(terms[1::2].sum()), float(terms[::2].sum()))


def _features(
    names: Sequence[str], passes: Sequence[tuple[str, float, float]], first: bool
) -> NDArray[np.float64]:
    """Factors of exp(theta): base, cold, then count and count times bytes of each pass."""
    by_name = {name: (count, count * nbytes) for name, count, nbytes in passes}
    return np.array([1.0, float(first), *(x for name in names for x in by_name.get(name, (0.0, 0.0)))])


def _log_model(theta: NDArray, features: NDArray) -> tuple[float, NDArray[np.float64]]:
    terms = features * np.exp(theta)
    total = terms.sum()
    return float(np.log(total)), terms / total


def _prior(names: Sequence[str], prior: Prior) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    theta = [prior.base, prior.cold, *(x for _ in names for x in (prior.call, 1 / prior.bandwidth))]
    widths = [WIDTHS["base"], WIDTHS["cold"], *(WIDTHS[x] for _ in names for x in ("call", "rate"))]
    return np.log(theta), np.array(widths)


def fit(parts: Sequence[Part], prior: Prior) -> StageFit:
    """Fit one stage on one machine."""
    names = tuple(dict.fromkeys(each.name for part in parts for each in part.expected))
    features = np.array(
        [
            _features(
                names,
                [(e.name, n, e.nbytes) for e, n in zip(p.expected, p.counts, strict=True)],
                p.first,
            )
            for p in parts
        ]
    )
    logs = np.log([max(part.seconds, 1e-6) for part in parts])
    center, widths = _prior(names, prior)

    def residuals(theta: NDArray[np.float64]) -> NDArray[np.float64]:
        data = (logs - np.log(features @ np.exp(theta))) / SCATTER
        robust = np.sign(data) * np.sqrt(2 * (np.sqrt(1 + data**2) - 1))
        return np.concatenate([robust, (theta - center) / widths])

    theta = least_squares(residuals, center).x
    off = logs - np.log(features @ np.exp(theta))
    scatter = float(max(SCATTER / 2, 1.4826 * np.median(np.abs(off)))) if len(parts) > 1 else SCATTER
    jacobian = (features * np.exp(theta)) / (features @ np.exp(theta))[:, None] / max(scatter, SCATTER)
    hessian = jacobian.T @ jacobian + np.diag(widths**-2)
    moved = {sum(n * e.nbytes for e, n in zip(p.expected, p.counts, strict=True)) or 1.0 for p in parts}
    return StageFit(names, theta, np.linalg.inv(hessian), tuple(np.log(sorted(moved))))


@dataclass(frozen=True)
class Model:
    """Samples, and the fits of stages on machines that follow from them."""

    samples: Sequence[ChunkSample]
    fits: dict[tuple[str, Machine], StageFit] = field(default_factory=dict)
    _powers: dict[Machine, Power | None] = field(default_factory=dict)

    @cached_property
    def parts(self) -> Mapping[tuple[str, Machine], list[Part]]:
        """Samples by stage and machine."""
        table: dict[tuple[str, Machine], list[Part]] = {}
        for sample in self.samples:
            for part in sample.parts:
                table.setdefault((part.stage, part.machine), []).append(part)
        return table

    def machines(self) -> list[Machine]:
        """Machines that there are records of, those with the most first."""
        counts: dict[Machine, int] = {}
        for sample in self.samples:
            counts[sample.machine] = counts.get(sample.machine, 0) + 1
        return sorted(counts, key=lambda machine: -counts[machine])

    def _fit(self, stage: str, machine: Machine) -> StageFit:
        known = (stage, machine)
        if known not in self.fits:
            self.fits[known] = fit(self.parts[known], PRIORS[machine.backend])
        return self.fits[known]

    def seconds(self, stage: str, machine: Machine, passes: Sequence[Pass], first: bool) -> Estimate:
        """Seconds of one stage's part of a chunk."""
        counted = [(each, self.count(each)) for each in passes]
        numbers = [(each.name, count.value, each.nbytes) for each, count in counted]
        spread = max((count.sigma for _, count in counted), default=0.0)
        estimate = self._by_numbers(stage, machine, numbers, first)
        return Estimate(estimate.value, float(np.hypot(estimate.sigma, spread)))

    def _by_numbers(
        self, stage: str, machine: Machine, numbers: Sequence[tuple[str, float, float]], first: bool
    ) -> Estimate:
        if (stage, machine) in self.parts:
            return self._fit(stage, machine).seconds(numbers, first)
        for other in self.machines():
            if other.backend == machine.backend and (stage, other) in self.parts:
                there = self._fit(stage, other).seconds(numbers, first)
                factor = self.factor(other, machine)
                return Estimate(there.value * factor.value, float(np.hypot(there.sigma, factor.sigma)))
        names = [name for name, _, _ in numbers]
        theta, widths = _prior(names, PRIORS[machine.backend])
        one = StageFit(tuple(names), theta, np.diag(widths**2)).seconds(numbers, first)
        return Estimate(one.value / speed(gpus(machine)), one.sigma)

    def factor(self, one: Machine, other: Machine) -> Estimate:
        """Seconds on another machine per second on one, by the stages that both have."""
        both = [stage for stage, machine in self.parts if machine == one and (stage, other) in self.parts]
        ratios = [
            self._fit(stage, other).theta.mean() - self._fit(stage, one).theta.mean()
            for stage in both
            if self._fit(stage, other).names == self._fit(stage, one).names
        ]
        if not ratios:
            return Estimate(units(one) / units(other), UNSEEN)
        return Estimate(float(np.exp(np.median(ratios))), UNSEEN / 2)

    def count(self, each: Pass) -> Estimate:
        """Number of a pass: as expected, times what records say of those with the same settings."""
        if not each.counted:
            return Estimate(each.count)
        ratios = self._ratios.get(each.alike)
        if ratios:
            return Estimate(each.count * float(np.exp(np.median(ratios))), COUNT_KNOWN)
        related = [r for alike, rs in self._ratios.items() if alike[:3] == each.alike[:3] for r in rs]
        if related:
            return Estimate(each.count * float(np.exp(np.median(related))), COUNT_RELATED)
        return Estimate(each.count, COUNT_UNKNOWN)

    @cached_property
    def _ratios(self) -> dict[tuple[object, ...], list[float]]:
        """Logarithms of real over expected numbers, by settings."""
        table: dict[tuple[object, ...], list[float]] = {}
        for parts in self.parts.values():
            for part in parts:
                for each, count in zip(part.expected, part.counts, strict=True):
                    if each.counted and count != each.count:
                        table.setdefault(each.alike, []).append(float(np.log(count / each.count)))
        return table

    def beside(self, stage: str, cost: Cost) -> float:
        """Seconds of a chunk beside its parts: reading and sums of arrays as the bytes are, and the rest."""
        known = [sample for sample in self.samples if sample.stage == stage]
        if not known:
            return 2e-3
        sizes = [(_size(_declared(s), s.parts[-1].expected), s) for s in known if s.parts]
        rates = [sample.handling / size for size, sample in sizes if size]
        size = _size(cost.device_memory, cost.work)
        handling = np.median(rates) * size if rates else np.median([sample.handling for sample in known])
        return float(self._rest(stage) + handling)

    def _rest(self, stage: str) -> float:
        """Of no size, and not of the first chunk of a process if there are others."""
        known = [sample for sample in self.samples if sample.stage == stage]
        later = [sample.rest for sample in known if sample.opening is None]
        return float(np.median(later or [sample.rest for sample in known]))

    def opening(self, machine: Machine) -> float:
        """Seconds more of the first chunk of a process, beside those of its stages and their kernels."""
        known = [
            sample.opening + max(0.0, sample.rest - self._rest(sample.stage))
            for sample in self.samples
            if sample.machine == machine and sample.opening is not None
        ]
        return float(np.median(known or [OPENING[machine.backend]]))

    def kernels_of(self, stage: str, machine: Machine, passes: Sequence[Pass]) -> Kernels:
        """Kernels that a process gets for a stage: a lattice is known by the bytes of passes."""
        known = self.parts.get((stage, machine), ())
        same = any(_bytes(part.expected) == _bytes(passes) for part in known)
        return self.kernels.needed(stage, machine, same)

    @cached_property
    def kernels(self) -> KernelModel:
        """Numbers and seconds of kernels, from samples."""
        return KernelModel(self.samples)

    def regimes(self, stage: str, machine: Machine, passes: Sequence[Pass]) -> Regimes:
        """Seconds of a stage's part of a chunk in which bytes move, and in which kernels are started."""
        if (stage, machine) not in self.parts:
            return Regimes()
        numbers = [(each.name, self.count(each).value, each.nbytes) for each in passes]
        return self._fit(stage, machine).regimes(numbers)

    def power(self, machine: Machine) -> Power | None:
        """Power of a device; None where nothing measured it."""
        if machine not in self._powers:
            known = [s for s in self.samples if s.machine == machine and s.joules is not None]
            chunks = [(self._regimes(s), s.seconds, s.joules or 0.0) for s in known]
            self._powers[machine] = power(chunks, machine.backend) if chunks else None
        return self._powers[machine]

    def _regimes(self, sample: ChunkSample) -> Regimes:
        """Those of a chunk that was measured."""
        total = Regimes()
        for part in sample.parts:
            numbers = [(e.name, n, e.nbytes) for e, n in zip(part.expected, part.counts, strict=True)]
            fitted = self._fit(part.stage, part.machine).regimes(numbers)
            moving, starting, _ = fitted.within(part.seconds)
            total = total.plus(Regimes(moving, starting))
        return total


def _size(device_memory: int, passes: Sequence[Pass]) -> float:
    """Bytes of a chunk's fields, as far as its plan declares any."""
    return float(device_memory) or max((each.nbytes for each in passes), default=0.0)


def _declared(sample: ChunkSample) -> int:
    """Bytes that a chunk's plan names, on all GPUs of its worker."""
    return gpus(sample.machine) * sample.expected["device_memory"]


def _bytes(passes: Sequence[Pass]) -> list[float]:
    return [each.nbytes for each in passes]


def units(machine: Machine) -> float:
    """Speed of a machine as its name tells: kernel threads of a processor, GPUs that share a lattice."""
    return speed(gpus(machine)) if machine.backend == "cuda" else threads(machine)


def threads(machine: Machine) -> int:
    """Kernel threads of a processor's worker, as its name ends; 1 for a GPU."""
    words = machine.device.rsplit(", ", 1)[-1].split()
    return int(words[0]) if len(words) == 2 and words[0].isdecimal() else 1
