"""The choice of a kernel's shape among its candidates."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cache, wraps
from typing import Any, Generic, ParamSpec, TypeVar, cast

import cupy

from stages.lqcd.kernels.cuda.compile import source
from stages.lqcd.kernels.cuda.launch import Launch
from stages.lqcd.kernels.cuda.tuning.table import DeviceKind, Table, read_table, table_key, table_path

S = TypeVar("S")
P = ParamSpec("P")
W = TypeVar("W", bound=Callable[..., Any])

HAS_WORK = "has_work"


@dataclass(frozen=True)
class Options(Generic[S]):
    """The shapes that a kernel may be started in, frozen dataclasses of numbers, the model's best first."""

    shapes: tuple[S, ...]
    launch: Callable[[S], Launch]
    """The kernel in one of them."""


@dataclass(frozen=True)
class ShapeProblem:
    """A kernel at one size and precision, with its options."""

    name: str
    """The kernel and the arguments of its launch function, as `gram nx=16 ny=16 ...`."""
    options: Options[Any]

    @property
    def key(self) -> str:
        """The table's key, which holds for one text of the kernel's source."""
        return table_key(self.name, source_digest(self.options.launch(self.options.shapes[0]).file))

    def launch(self, shape: Any) -> Launch:
        """The kernel in a shape. Every choice but the model's own is named in it, to be kept with results."""
        launch = self.options.launch(shape)
        return launch if shape == self.options.shapes[0] else replace(launch, choice=self._choice(shape))

    def measured(self, table: Table) -> Any:
        """The shape that a table holds for this problem, else the model's first.

        Only a candidate is ever taken, whatever stands in the file.
        """
        entry = table.get(self.key) if len(self.options.shapes) > 1 else None
        matching = (shape for shape in self.options.shapes if entry and plain_shape(shape) == entry.shape)
        return next(matching, self.options.shapes[0])

    def _choice(self, shape: Any) -> str:
        return f"{self.name}: {' '.join(f'{name}={value}' for name, value in asdict(shape).items())}"


Listener = Callable[[ShapeProblem], Launch]
_listeners: list[Listener] = []
_forgetful: list[Callable[[], None]] = []


def tuned(options: Callable[P, Options[Any]]) -> Callable[P, Launch]:
    """Turn a function that gives the options of a kernel into one that gives the kernel in the best shape.

    Nothing is ever measured here, and each problem is looked up once per process: the table is read at the
    first, and what is written later is for later processes. A
    problem is named after the function, `gram_launch` as `gram`.

    A function of a number n of right-hand sides also gives the kernel for fewer (`Launch.narrower`), with its
    other arguments as they are.
    """
    signature = inspect.signature(options)

    @cache
    def best(*arguments: P.args, **named: P.kwargs) -> Launch:
        bound = signature.bind(*arguments, **named)
        bound.apply_defaults()
        words = (f"{name}={value}" for name, value in bound.arguments.items())
        kernel = options.__name__.removesuffix("_launch")
        problem = ShapeProblem(" ".join((kernel, *words)), options(*arguments, **named))
        if _listeners:
            return _listeners[-1](problem)
        launch = problem.launch(problem.measured(measured_choices()))
        if "n" not in bound.arguments:
            return launch
        given = dict(bound.arguments)

        def narrower(widths: Sequence[int]) -> list[Launch]:
            return [best(**{**given, "n": n}) for n in widths if n < given["n"]]

        return replace(launch, narrower=narrower)

    _forgetful.append(best.cache_clear)
    return cast(Callable[P, Launch], wraps(options)(best))


def timed_where(has_work: Callable[..., bool]) -> Callable[[W], W]:
    """Mark a wrapper some of whose calls do nothing, and so tell nothing of a shape.

    has_work: given the wrapper's arguments.
    """

    def mark(wrapper: W) -> W:
        setattr(wrapper, HAS_WORK, has_work)
        return wrapper

    return mark


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """While the block runs, `listener` answers for the table, and is asked once for each problem."""
    _listeners.append(listener)
    forget_choices()
    try:
        yield
    finally:
        _listeners.pop()
        forget_choices()


def forget_choices() -> None:
    """Every kernel is asked for anew."""
    for forget in _forgetful:
        forget()


@cache
def measured_choices() -> Table:
    """The table of the current device, as this process first saw it; empty where there is no device."""
    return read_table(table_path(current_device())) if cupy.is_available() else {}


def current_device() -> DeviceKind:
    """The kind of the current CUDA device."""
    properties = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)
    return DeviceKind(properties["name"].decode(), f"{properties['major']}.{properties['minor']}")


@cache
def source_digest(file: str) -> str:
    """SHA-256 of a `.cu` file with its headers in place."""
    return hashlib.sha256(source(file).encode()).hexdigest()


def plain_shape(shape: Any) -> dict[str, Any]:
    """A shape as it comes back from JSON."""
    return json.loads(json.dumps(asdict(shape)))
