"""Section `analysis` of a file of the workflow `g2_hvp`: from correlators to a_mu, its keys and limits."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Annotated, Literal

from pydantic import Field, model_validator

from stages.base.errors import InputError
from stages.lqcd.analysis.a_mu import CHARGES, STRONG
from stages.lqcd.analysis.bounding import Tail
from stages.lqcd.analysis.common_resampling import label_expression
from stages.lqcd.analysis.hvp_kernel import Muon
from stages.lqcd.analysis.hvp_sum import TOTAL, WINDOWS, Window
from stages.lqcd.analysis.scale import Measured, Scale
from workflows import FileSection, Problem, Usual
from workflows.g2_disconnected.schema import ResampledAnalysis

Positive = Annotated[float, Field(gt=0)]
Error = Annotated[float, Field(ge=0)]
ROWS = (*CHARGES, STRONG, "statistical", "scale", "total")
"""Rows of a budget that no correction has the name of."""


class MeasuredSection(FileSection):
    """A number from elsewhere with its error."""

    value: float
    """The number itself."""
    error: Error
    """Its error, one standard deviation."""

    def named(self, name: str) -> Measured:
        """The number with its name in the budget."""
        return Measured(self.value, self.error, name)


class CorrectionSection(MeasuredSection):
    """A stated correction in 1e-10, which is a row of the budget."""

    window: str = TOTAL.name
    """The window that it belongs to."""


class ScaleSection(FileSection):
    """The lattice spacing: `a_fm` with its `error`, or a length in lattice units and in fm."""

    a_fm: Annotated[float | None, Usual(0.02, 0.3, "is it in fm?")] = Field(default=None, gt=0)
    """Lattice spacing in fm."""
    error: Error | None = None
    """Error of `a_fm`."""
    lattice: MeasuredSection | None = None
    """Instead, w0 or sqrt(t0) in lattice units."""
    fm: MeasuredSection | None = None
    """The same length in fm."""

    @model_validator(mode="after")
    def _one_way(self) -> ScaleSection:
        given = self.model_fields_set
        if given == {"a_fm"}:
            raise ValueError("the lattice spacing has no error: add `error`, in fm")
        if given not in ({"a_fm", "error"}, {"lattice", "fm"}):
            raise ValueError("give `a_fm` and `error`, or `lattice` and `fm`, a length in both units")
        _ = self.of_stages  # which may refuse them
        return self

    @property
    def of_stages(self) -> Scale:
        """The lattice spacing."""
        if self.lattice and self.fm:
            return Scale.from_ratio(self.lattice.named("the length / a"), self.fm.named("the length in fm"))
        assert self.a_fm is not None and self.error is not None  # checked when it was read
        return Scale(self.a_fm, self.error)


class WindowSection(FileSection):
    """A window of one's own: Theta(t, start) - Theta(t, stop)."""

    start: float | None = None
    """Lower edge in fm; default: none."""
    stop: Positive | None = None
    """Upper edge in fm; default: none."""
    width: Positive = 0.15
    """Width of both edges in fm."""

    @model_validator(mode="after")
    def _in_order(self) -> WindowSection:
        if self.start is not None and self.stop is not None and self.start >= self.stop:
            raise ValueError(f"a window rises before it falls, got start {self.start}, stop {self.stop}")
        return self


class ZvSection(FileSection):
    """Z_V of a current: stated, or the square root of the conserved correlator over its own at a slice."""

    value: Positive | None = None
    """Renormalisation of the current."""
    error: Error | None = None
    """Error of `value`."""
    at: int | None = Field(default=None, ge=2)
    """Slice of the ratio, whose neighbours enter, too; needs `conserved` among the connected currents."""

    @model_validator(mode="after")
    def _one_way(self) -> ZvSection:
        if self.model_fields_set not in ({"value", "error"}, {"at"}):
            raise ValueError(
                "give `value` and `error`, or `at`, the slice of the ratio to the conserved current"
            )
        return self

    @property
    def stated(self) -> MeasuredSection | None:
        """Value and error, where they are given."""
        if self.value is None or self.error is None:
            return None
        return MeasuredSection(value=self.value, error=self.error)


class FitSection(FileSection):
    """Exponentials with oscillating partners, fitted by corrfitter."""

    first: int = Field(ge=1)
    """First slice of the fit."""
    last: int | None = Field(default=None, ge=2)
    """Last slice of the fit; default: N/2."""
    states: int = Field(default=2, ge=1)
    """Number of states."""
    partners: int = Field(default=1, ge=0)
    """Number of oscillating partners."""


class TailSection(FileSection):
    """Bounds of the tails, lattice units."""

    energy: Positive
    """Of two pions in the box, the lowest of the light part."""
    strange_energy: Positive | None = None
    """Of the lowest strange vector state, for the disconnected part; default: that is summed to its end."""
    slice: int | None = Field(default=None, ge=1)
    """First slice beyond which the light part is bounded; default: where bounds are as good as statistics."""
    disconnected_slice: int | None = Field(default=None, ge=1)
    """The same of the disconnected part."""
    steps: int = Field(default=4, ge=1)
    """Slices over which the effective energy is taken."""
    fit: FitSection | None = None
    """A fit that the light part follows beyond `slice`, instead of bounds; needs corrfitter and lsqfit."""

    def contradictions(self) -> Iterator[Problem]:
        """A fit without the slice where it begins to be used, or the library."""
        if self.fit and self.slice is None:
            yield ("fit",), "needs `slice`, beyond which the light part follows it"
        if self.fit and not find_spec("corrfitter"):
            yield ("fit",), "needs corrfitter: pip install corrfitter, or leave `fit` out"
        if self.fit and self.fit.last is not None and self.fit.first >= self.fit.last:
            yield ("fit", "first"), f"{self.fit.first} is not before `last`, {self.fit.last}"
        if self.disconnected_slice is not None and self.strange_energy is None:
            text = "needs `strange_energy`, without which the disconnected part is summed to its end"
            yield ("disconnected_slice",), text
        for name in ("slice", "disconnected_slice"):
            if (number := getattr(self, name)) is not None and number < self.steps:
                yield (name,), f"{number} is less than `steps`, {self.steps}, over which the energy is taken"

    @property
    def of_stages(self) -> Tail:
        """The tail as stages take it; the light part's is a fit's, if there is one."""
        bounded = (*([] if self.fit else ["light"]), *(["disconnected"] if self.strange_energy else []))
        slices = (self.slice, self.disconnected_slice)
        return Tail(self.energy, self.strange_energy, *slices, steps=self.steps, bounded=bounded)


class BlindSection(FileSection):
    """One secret factor on all that is linear in the correlators' averages."""

    key: str
    """File with the key, outside of the store; `quarkline open --new-key FILE` makes one."""
    spread: float = Field(default=0.1, gt=0, lt=1)
    """The factor is uniform in 1 - spread ... 1 + spread."""


class HvpAnalysis(ResampledAnalysis):
    """From correlators to a_mu: a change here repeats the analysis only."""

    current: Literal["conserved", "one_link", "local"] = "one_link"
    """The connected current that enters a_mu; another needs to be among `connected.currents`."""
    scale: ScaleSection | None = None
    """The lattice spacing with its error; default: that of `ensemble.name`."""
    windows: Annotated[tuple[str, ...], Field(strict=False, min_length=1)] = ("total", "SD", "W", "LD")
    """Windows, of total, SD, W, LD, W2 and those of `own_windows`."""
    own_windows: dict[str, WindowSection] = Field(default={})
    """Other windows by name."""
    z_v: dict[str, ZvSection] = Field(default={})
    """Z_V by current; the conserved one has 1. The disconnected part has that of one_link at light mass."""
    tail: TailSection | None = None
    """Bounds of the tails; default: the correlators are summed to N/2."""
    corrections: dict[str, CorrectionSection] = Field(default={})
    """Stated inputs in 1e-10 by name (finite volume, taste breaking), added as rows of the budget."""
    streams: str | None = None
    """Pattern of the configurations' labels, "l4864{stream}.{number}.ildg": bins hold one stream only, and
    numbers put configurations in order; * stands for what does not matter. Default: a label ends in its
    number, what stands before it is the stream."""
    blind: BlindSection | None = None
    """A secret factor on all results; default: none."""
    muon_gev: Annotated[Positive, Usual(0.1, 0.11, "is it in GeV?")] = Muon().mass
    """Mass of the muon in GeV."""
    inverse_alpha: Annotated[Positive, Usual(137.0, 137.1, "it is 137.036")] = Muon().inverse_alpha
    """Inverse of the fine-structure constant."""
    whole_middle: bool = False
    """Whether the slice N/2 has weight 1; default: 1/2, as half of it belongs to the backward side."""
    last: int | None = Field(default=None, ge=1)
    """Last slice of the sums; default: N/2."""

    def window(self, name: str) -> Window:
        """A window as stages take it."""
        own = self.own_windows.get(name)
        return Window(name, own.start, own.stop, own.width) if own else WINDOWS[name]

    def contradictions(self) -> Iterator[Problem]:
        """Windows that nothing defines, corrections of others, a Z_V that is missing, a faulty pattern."""
        known, have = [*WINDOWS, *self.own_windows], ", ".join(self.windows)
        for name in (name for name in self.windows if name not in known):
            text = f"no window is named {name!r}: take {', '.join(known)}, or add it to `own_windows`"
            yield ("windows",), text
        if len(set(self.windows)) < len(self.windows):
            yield ("windows",), "names a window twice"
        for name in (name for name in self.own_windows if name in WINDOWS or not name.strip()):
            text = f"{name!r} is no name for it: take one that is none of {', '.join(WINDOWS)}"
            yield ("own_windows", name), text
        for name, correction in self.corrections.items():
            if name in ROWS or name.startswith(("Z_V ", "tail, ")):
                yield ("corrections", name), f"{name!r} is another row of the budget: name it otherwise"
            if correction.window not in self.windows:
                text = f"is for the window {correction.window!r}, and `windows` has {have}"
                yield ("corrections", name), f"{text}: change one of them"
        for name in self.z_v:
            if name not in ("one_link", "local"):
                yield ("z_v", name), f"{name!r} is none of one_link and local; the conserved current has 1"
        if self.streams is not None:
            try:
                label_expression(self.streams)
            except InputError as error:
                yield ("streams",), str(error)
