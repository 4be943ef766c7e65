"""Energy of a campaign by stage: what the chunks of its runs drew, and how many nothing measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pipeline.declare.text import counted
from pipeline.running.run_state import RunState


@dataclass(frozen=True)
class StageEnergy:
    """Energy of the chunks of a stage that were computed, repeated ones among them."""

    stage: str
    joules: float | None
    """Of those that something measured; None where that is none of them."""
    measured: int
    unmeasured: int
    """Number of chunks whose energy nothing measured."""


def energies(states: Iterable[RunState]) -> tuple[StageEnergy, ...]:
    """Energy by stage over some runs, in the order of their first chunks."""
    joules, measured, unmeasured = Counter[str](), Counter[str](), Counter[str]()
    for state in states:
        joules.update(state.joules)
        measured.update(state.measured)
        unmeasured.update(state.unmeasured)
    return tuple(
        StageEnergy(stage, joules[stage] if measured[stage] else None, measured[stage], unmeasured[stage])
        for stage in dict.fromkeys([*measured, *unmeasured])
    )


def energy_lines(stages: Sequence[StageEnergy]) -> list[str]:
    """The sum, and each stage's part, for people; nothing where nothing was computed."""
    if not stages:
        return []
    known = {each.stage: each.joules for each in stages if each.joules is not None}
    without = sum(each.unmeasured for each in stages)
    if not known:
        return [f"energy: not measured ({counted(without, 'chunk')}: no counter of the device can be read)"]
    parts = ", ".join(f"{stage} {energy_text(joules)}" for stage, joules in known.items())
    missing = f"; without {counted(without, 'chunk')} that nothing measured" if without else ""
    return [f"energy: {energy_text(sum(known.values()))} ({parts}){missing}"]


def energy_text(joules: float) -> str:
    """`1.23 MJ`: three digits with a unit."""
    for size, unit in ((1e9, "GJ"), (1e6, "MJ"), (1e3, "kJ")):
        if joules >= size:
            return f"{joules / size:.3g} {unit}"
    return f"{joules:.3g} J"
