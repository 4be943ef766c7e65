"""Kernels against their twins: calls that work makes are repeated by another implementation and compared.

Twins are the plain NumPy kernels (`reference`, the oracle) and, of the kernels of a GPU, those of the
processor. Of all calls with operands of one kind (shapes, types, numbers that select) the first is compared.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from functools import partial, wraps
from pathlib import Path
from typing import Any

from stages.lqcd.kernels import dispatch
from stages.lqcd.kernels.dispatch import Implementation, around_kernels, implementation_of, kernels_of
from workflows.certification.check import Check, Device, measured, skipped
from workflows.certification.operands import Hosted, UnknownOperandError, is_array, items

LIMITS = {"single": 2e-4, "double": 1e-10}
"""Most that rounding may change, relative to the largest element that a call wrote; sums may cancel."""

CONDITIONED = {
    "aggregation.inverse_root",
    "batched_basis.rayleigh",
    "block_cg.step_coefficients",
    "lane_blas.lane_least_squares",
    "lane_blas.lane_polynomial",
    "coarse_dslash.hermitian_inverse",
    "coarse_dslash.inverse",
}
"""Solutions of small systems, which are as exact as these are conditioned; residuals, differences of large
numbers."""
CONDITIONED_LIMITS = {"single": 1e-2, "double": 1e-6}

PACKAGES = "stages.lqcd.kernels."
PACKING = ".pack", ".pack_fields", ".pack_spatial"
"""Kernels whose result is in a form of their package's own: twins keep theirs, for calls that use it."""

STARTED = re.compile(r'kernel\(\s*"(\w+\.\w+)"')
"""Where a contract starts a kernel."""

NO_ORACLE = "it has no oracle of its own; --backend cuda compares the GPU's with it"


class Twins:
    """Compares kernels while work is done `at_work`; `checks` says what came out."""

    def __init__(self, device: Device) -> None:
        self._package = device.backend
        self._device = device
        self._compared: dict[tuple[str, str, str], list[tuple[float, set[int]]]] = {}
        """Largest difference and widths of each call, by kernel, precision and twin."""
        self._without: set[str] = set()
        """Kernels that have no twin."""
        self._refused: dict[tuple[str, str], str] = {}
        """Kernels and twins that could not repeat some of their calls, with the reason."""
        self._packed: dict[int, tuple[object, dict[str, object]]] = {}
        self._seen: set[Hashable] = set()
        self._called: set[str] = set()
        self._names: dict[int, str] = {}
        self._busy = False

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """While the block runs, kernels of the device are compared."""
        self._names = {id(_implementation(name, self._package)): name for name in kernel_names()}
        with around_kernels(self._watched):
            yield

    def checks(self) -> Iterator[Check]:
        """A check for each kernel, precision and twin."""
        for (name, precision, twin), calls in sorted(self._compared.items()):
            widths = ", ".join(map(str, sorted({width for _, of_call in calls for width in of_call})))
            about = f"{len(calls)} kinds of calls and the {twin} kernel's" + (widths and f"; N = {widths}")
            deviation = max(largest for largest, _ in calls)
            limit = (CONDITIONED_LIMITS if name in CONDITIONED else LIMITS)[precision]
            yield measured(f"kernel: {name}, {precision}, {twin}", about, deviation, limit)
        about = "calls and another implementation's"
        for name in sorted(self._without):
            yield skipped(f"kernel: {name}", about, NO_ORACLE)
        for (name, twin), reason in sorted(self._refused.items()):
            yield skipped(f"kernel: {name}, {twin}, some of its calls", about, reason)
        if left := [name for name in kernel_names() if name not in self._called]:
            where = "by this work" if self._device.full else "by the short form (--full)"
            yield skipped("kernel: others", about, f"not called {where}: {', '.join(left)}")

    def _watched(self, implementation: Implementation) -> Implementation:
        name = self._names.get(id(implementation))
        if name is None:
            return implementation

        @wraps(implementation)
        def call(*arguments: object, **named: object) -> object:
            self._called.add(name)
            if self._busy or self._capturing():
                return implementation(*arguments, **named)
            kind = (name, kind_of(arguments), kind_of(sorted(named.items())))
            if kind in self._seen and not name.endswith(PACKING):
                return implementation(*arguments, **named)
            self._seen.add(kind)
            return self._repeated(name, implementation, arguments, named)

        return call

    def _repeated(
        self,
        name: str,
        implementation: Implementation,
        arguments: tuple[object, ...],
        named: dict[str, object],
    ) -> object:
        """The result of a call, and of its twins on copies of what it was given."""
        prepared: dict[str, Hosted] = {}
        for twin in self._twins(name):
            try:
                prepared[twin] = Hosted(arguments, named, partial(self._twin_of, twin))
            except UnknownOperandError as error:
                self._refused[name, twin] = str(error)
        result = implementation(*arguments, **named)
        if not self._twins(name) and any(map(is_array, items((arguments, named.values(), result)))):
            self._without.add(name)
        packed: dict[str, object] = {}
        for twin, hosted in prepared.items():
            try:
                packed[twin] = self._compare(name, twin, hosted, result)
            except Exception as error:
                why = f"the {twin} kernel does not take these operands: {type(error).__name__}: {error}"
                self._refused[name, twin] = why
        if name.endswith(PACKING):
            self._keep(result, packed)
        return result

    def _keep(self, result: object, packed: dict[str, Any]) -> None:
        """Twins of what was packed, or of each part of it."""
        if isinstance(result, tuple):
            for place, part in enumerate(result):
                self._keep(part, {twin: parts[place] for twin, parts in packed.items()})
        else:
            self._packed[id(result)] = (result, packed)

    def _compare(self, name: str, twin: str, hosted: Hosted, result: object) -> object:
        """Run a twin, keep the largest difference; its result."""
        self._busy = True
        try:
            with kernels_of(twin):
                expected = implementation_of(name, twin)(*hosted.arguments, **hosted.named)
        finally:
            self._busy = False
        if not name.endswith(PACKING) and (differences := hosted.differences(result, expected)):
            calls = self._compared.setdefault((name, hosted.precision, twin), [])
            calls.append((max(differences), hosted.widths))
        return expected

    def _twins(self, name: str) -> list[str]:
        """Packages that can repeat a kernel."""
        oracle = _implementation(name, "reference")
        own = oracle is not None and oracle.__module__.startswith(f"{PACKAGES}reference.")
        others = self._package == "cuda" and _implementation(name, "cpu") is not None
        return [*(["reference"] if own else []), *(["cpu"] if others else [])]

    def _twin_of(self, twin: str, value: object) -> object:
        """The operand that a twin made of the same links or matrices, if `value` is one that was packed."""
        _, packed = self._packed.get(id(value), (None, {}))
        return packed.get(twin)

    def _capturing(self) -> bool:
        """True while a CUDA graph is recorded, in which nothing may be looked at."""
        if self._package != "cuda":
            return False
        return bool(self._device.xp.cuda.get_current_stream().is_capturing())


def _implementation(name: str, package: str) -> Implementation | None:
    """A package's kernel; None where it has none, as a processor of what only a GPU takes."""
    try:
        return implementation_of(name, package)
    except AttributeError:
        return None


def kernel_names() -> list[str]:
    """Names ``family.function`` of all kernels that contracts start, but of those that only queue work."""
    contracts = sorted(Path(dispatch.__file__).parent.glob("*.py"))
    names = (name for file in contracts for name in STARTED.findall(file.read_text()))
    return [name for name in names if not name.startswith("stream.")]


def kind_of(value: Any) -> Hashable:
    """The features of an operand that decide on what a kernel does: not the values of its numbers."""
    if isinstance(value, type):
        return value.__name__
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return tuple(value.shape), str(value.dtype)
    if isinstance(value, (tuple, list)):
        return tuple(map(kind_of, value))
    if isinstance(value, (bool, int, str, type(None))):
        return value
    if is_dataclass(value):
        return type(value).__name__, tuple(kind_of(getattr(value, each.name)) for each in fields(value))
    return type(value).__name__
