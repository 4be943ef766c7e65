"""Measuring: every kernel that asks for its shape while work runs is timed in all of its candidates."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from functools import partial, wraps
from typing import Any

import cupy

from stages.lqcd.kernels.cuda.compile import compile_all
from stages.lqcd.kernels.cuda.launch import Launch
from stages.lqcd.kernels.cuda.tuning.choice import (
    HAS_WORK,
    ShapeProblem,
    forget_choices,
    listening,
    plain_shape,
)
from stages.lqcd.kernels.cuda.tuning.operands import agree, arrays_in, distinct, is_single, restore
from stages.lqcd.kernels.cuda.tuning.table import Entry, Finding
from stages.lqcd.kernels.cuda.tuning.timing import Work, fastest_times
from stages.lqcd.kernels.dispatch import around_kernels

MARGIN = 0.98
"""A shape must need less than this part of the model's time to replace it: less is noise."""

Announce = Callable[[ShapeProblem], None]


def entry_of(finding: Finding) -> Entry:
    """A finding as an entry of the table."""
    driver = str(cupy.cuda.runtime.driverGetVersion())
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return Entry(finding.shape, finding.seconds, finding.model_seconds, now, driver, cupy.__version__)


class Tuner:
    """Measures kernels whose calls go through `measured`; `findings` grows as work does.

    A kernel that asks for a shape nobody has measured yet is called again with each candidate, on the very
    arguments of that call, whose arrays are put back at the end. Work thus has the results that it always
    has. `at_work` must be around it.
    """

    def __init__(self, announce: Announce = lambda problem: None) -> None:
        self.findings: list[Finding] = []
        self.unmeasured: list[str] = []
        """Problems that other calls than those of kernels asked for, or whose copies found no memory."""
        self._announce = announce
        self._chosen: dict[str, Any] = {}
        self._asked: dict[str, ShapeProblem] | None = None
        self._seen: set[Hashable] = set()

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """While the block runs, every kernel that works on CuPy arrays is measured."""
        with listening(self.shape_of), around_kernels(self.measured):
            yield

    def shape_of(self, problem: ShapeProblem) -> Launch:
        """The kernel as far as is known: the answer to `listening`."""
        if problem.name not in self._chosen and len(problem.options.shapes) > 1:
            if self._asked is None:
                self.unmeasured.append(problem.name)
            else:
                self._asked[problem.name] = problem
        return problem.options.launch(self._chosen.get(problem.name, problem.options.shapes[0]))

    def measured(self, wrapper: Callable[..., Any]) -> Callable[..., Any]:
        """The implementation of a kernel, every call of which is measured."""
        has_work = getattr(wrapper, HAS_WORK, None)

        @wraps(wrapper)
        def call(*arguments: Any, **named: Any) -> Any:
            work = partial(wrapper, *arguments, **named)
            kind = (wrapper, _kind(arguments), _kind(sorted(named.items())))
            if self._asked is not None or kind in self._seen or _capturing():
                return work()
            idle = has_work is not None and not has_work(*arguments, **named)
            with self._hearing() as asked:
                result = work()
            if idle:
                forget_choices()  # to be asked again
                return result
            self._seen.add(kind)
            if asked:
                self._tune(work, distinct(arrays_in([*arguments, *named.values()])), asked)
            return result

        return call

    @contextmanager
    def _hearing(self) -> Iterator[dict[str, ShapeProblem]]:
        """Collects the problems that are asked for in the block and still have to be measured."""
        outer, self._asked = self._asked, {}
        try:
            yield self._asked
        finally:
            self._asked = outer

    def _tune(self, work: Work, arrays: Sequence[cupy.ndarray], asked: dict[str, ShapeProblem]) -> None:
        """One problem after the other, and those that a choice brings up: a grid may decide on a kernel."""
        try:
            copies = [array.copy() for array in arrays]
            while asked:
                problem = next(iter(asked.values()))
                self._announce(problem)
                with self._hearing():
                    self._chosen[problem.name] = self._best_shape(problem, work, arrays, copies)
                with self._hearing() as asked:
                    forget_choices()
                    work()
            restore(arrays, copies)
        except cupy.cuda.memory.OutOfMemoryError:
            self.unmeasured += asked

    def _best_shape(
        self,
        problem: ShapeProblem,
        work: Work,
        arrays: Sequence[cupy.ndarray],
        copies: Sequence[cupy.ndarray],
    ) -> Any:
        """Measure a problem with this work."""

        def select(shape: Any) -> Any:
            self._chosen[problem.name] = shape
            forget_choices()
            return work()

        model = problem.options.shapes[0]
        right, wrong = self._tried(problem, select, arrays, copies)
        times = fastest_times(right, select, work)
        best = min(times, key=times.__getitem__)
        if times[best] > MARGIN * times[model]:
            best = model
        self.findings.append(
            Finding(
                problem.name,
                problem.key,
                plain_shape(model),
                times[model],
                plain_shape(best),
                times[best],
                len(right) + len(wrong),
                tuple(map(str, wrong)),
            )
        )
        return best

    def _tried(
        self,
        problem: ShapeProblem,
        select: Callable[[Any], Any],
        arrays: Sequence[cupy.ndarray],
        copies: Sequence[cupy.ndarray],
    ) -> tuple[list[Any], list[Any]]:
        """The candidates that start here and give the model's results up to rounding, and the others.

        Of shapes that come to the same launch, as happens on small lattices, the first stands for all.
        """
        launches: dict[Launch, Any] = {}
        for shape in problem.options.shapes:
            launches.setdefault(problem.options.launch(shape), shape)
        compiled = set(compile_all(list(launches)))
        (_, model), *others = launches.items()
        expected = _results(select, model, arrays, copies)
        single = is_single(expected)
        right: list[Any] = [model]
        wrong: list[Any] = []
        for launch, shape in others:
            try:
                fits = launch in compiled and agree(_results(select, shape, arrays, copies), expected, single)
            except cupy.cuda.driver.CUDADriverError:
                fits = False  # more registers or shared memory than the device has for such a block
            (right if fits else wrong).append(shape)
        return right, wrong


def _results(
    select: Callable[[Any], Any], shape: Any, arrays: Sequence[cupy.ndarray], copies: Sequence[cupy.ndarray]
) -> list[cupy.ndarray]:
    """Copies of all that a call leaves in its arguments or returns."""
    restore(arrays, copies)
    returned = select(shape)
    return [array.copy() for array in distinct(arrays_in([*arrays, returned]))]


def _kind(value: Any) -> Hashable:
    """The features of a value that decide on a kernel: shapes and types of arrays, not coefficients."""
    if isinstance(value, cupy.ndarray):
        return value.shape, value.dtype.str
    if isinstance(value, (tuple, list)):
        return tuple(map(_kind, value))
    if isinstance(value, (bool, int, str, type(None))):
        return value
    if is_dataclass(value):
        return type(value).__name__, tuple(_kind(getattr(value, field.name)) for field in fields(value))
    return type(value).__name__


def _capturing() -> bool:
    """True if calls are recorded into a graph and not executed."""
    return cupy.cuda.get_current_stream().is_capturing()
