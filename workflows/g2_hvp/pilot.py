"""Pilots of a target: which number of eigenvectors is the cheapest for the noise that the file's leave."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isnan, nan, sqrt

import numpy as np

from pipeline import Plan, Record, Store
from stages.hvp.contribution import KINDS
from stages.hvp.noise import HvpNoise
from stages.lqcd.analysis.a_mu import CHARGES
from workflows import Project, Step, variants
from workflows.g2_hvp.schema import HvpParameters
from workflows.g2_hvp.target import Kind, kinds

ONCE = ("deflation_space", "meson_fields", "low_low", "low_mode_loops")
"""Stages of eigenvectors, whose results serve all walls and noise vectors of a configuration."""
NOISE = dict(zip(("wall_noise", "pair_noise"), KINDS, strict=True))
"""Kinds of noise, by nodes that have it."""


@dataclass(frozen=True)
class Pilot:
    """Findings with some eigenvectors; seconds are of one configuration."""

    eigenvectors: int
    once: float
    kinds: tuple[Kind, ...]
    seconds: float = nan
    """For the same noise as with all eigenvectors of the file; not known before all pilots are done."""

    def __str__(self) -> str:
        each = "".join(f"{kind.seconds:.3g} s per {kind.words.removesuffix('s')}, " for kind in self.kinds)
        whole = f"{each}{self.seconds:.3g} s for the same noise"
        return f"{self.eigenvectors}: {self.once:.3g} s once, {whole}"


CHOSEN = Pilot(0, 0.0, (), 0.0)
"""Stands for pilots that are done."""


def tried(project: Project[HvpParameters]) -> int | None:
    """How many eigenvectors this round tries; None for a round of all configurations."""
    numbers, done = project.parameters.tried, project.decisions
    open_choice = len(done) < len(numbers) > 1 and all(isnan(each.seconds) for each in done)
    return numbers[len(done)] if open_choice else None


def with_modes(parameters: HvpParameters, number: int) -> HvpParameters:
    """Parameters with the lowest eigenvectors only."""
    key, value = ("deflation.vectors", number) if number else ("deflation", None)
    return variants.changed(parameters, key, value)


def after_pilot(project: Project[HvpParameters], number: int, plan: Plan, store: Store) -> Step:
    """The next pilot, or the round of all configurations with the cheapest number of eigenvectors."""
    shared = (chunk for chunk in plan.chunks if chunk.node.stage.name in ONCE)
    once = sum(Record.of(store.record(each.node.stage.name, each.key)).seconds for each in shared)
    of_noise = kinds(project.parameters, plan, store, _noise(project.parameters, plan, store))
    pilots = [*project.decisions, Pilot(number, once, tuple(of_noise))]
    following = replace(project, decisions=tuple(pilots))
    if tried(following) is not None:
        return Step(f"pilot, {number} eigenvectors: {once:.3g} s for them", met=False, project=following)
    variance = sum(kind.variance for kind in pilots[0].kinds) or 1.0
    for place, each in enumerate(pilots):  # with the optimal counts, Neyman's, of `least_cost` without chunks
        root = sum(sqrt(kind.variance * kind.count * kind.seconds) for kind in each.kinds)
        pilots[place] = replace(each, seconds=each.once + root**2 / variance)
    best = min(pilots, key=lambda each: each.seconds).eigenvectors
    costs = ", ".join(f"{each.eigenvectors}: {each.seconds:.3g} s" for each in pilots)
    text = f"{best} eigenvectors are the cheapest; per configuration, for the same noise, {costs}"
    chosen = replace(project, parameters=with_modes(project.parameters, best), decisions=tuple(pilots))
    return Step(text, met=False, project=chosen)


def _noise(parameters: HvpParameters, plan: Plan, store: Store) -> dict[str, float]:
    """Errors of a_mu by walls and noise vectors as if L and Z_V were 1, up to stated slices of tails."""
    target, analysis, errors = parameters.target, parameters.analysis, dict.fromkeys(KINDS, 0.0)
    assert target is not None
    own = [name for name in parameters.quarks if name != "light" or "up" not in parameters.quarks]
    charges = {f"{name} {analysis.current}": CHARGES[name] for name in own} | CHARGES
    tail, total = analysis.tail, parameters.total(target.a_mu.window)
    ends = {"light": tail.slice, "disconnected": tail.disconnected_slice} if tail else {}
    for chunk in (each for each in plan.chunks if each.node.name in NOISE):
        deviation = HvpNoise(**store.load(chunk.node.stage.name, chunk.key)).deviation
        weights, summed = total.weights(2 * deviation.shape[-1] - 2), np.zeros(len(deviation))
        for row, name in enumerate(chunk.node.parameters.get("rows", ("disconnected",))):
            w = weights[: (ends.get(name.split()[0]) or len(weights)) + 1]
            summed += charges.get(name, 0.0) * deviation[:, row, : len(w)] @ w
        errors[NOISE[chunk.node.name]] = float(np.linalg.norm(summed))
    return errors
