"""A test mode: CuPy's own calls on arrays that lie on several devices fail, or are listed.

Such a call runs on the first device, which reads the parts of the others over the link, at a tenth of the
rate of its memory. Fields are for our launches, which share the work (`Launch.work`); one that shares nothing
counts as such a call, and so does an array of CuPy's own that is large enough to be spread. Small arrays
and small views are free. Outside these blocks nothing of this exists.
"""

import re
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import wraps
from importlib import import_module
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any
from unittest.mock import patch

import cupy
import numpy as np

from stages.lqcd.kernels.cuda import compile as compilation
from stages.lqcd.kernels.cuda.devices.group import DeviceGroup, works_separately
from stages.lqcd.kernels.cuda.devices.partition import PAGE, Run
from stages.lqcd.kernels.cuda.devices.spans import Span, SpanPool, span_of
from stages.lqcd.kernels.cuda.launch import Launch

PACKAGE = "stages"

_WORD = re.compile(r"\w+")

VIEWS = _WORD.findall("""
    asarray ascontiguousarray atleast_1d atleast_2d atleast_3d broadcast_arrays broadcast_to can_cast
    common_type expand_dims get_array_module get_default_memory_pool imag iscomplexobj isrealobj isscalar
    is_available may_share_memory moveaxis ndim permute_dims real reshape result_type rollaxis shape
    shares_memory show_config size squeeze swapaxes transpose
""")
"""Functions of CuPy that take arrays and launch nothing, or what is caught in them."""

METHODS = _WORD.findall("""
    __add__ __radd__ __iadd__ __sub__ __rsub__ __isub__ __mul__ __rmul__ __imul__ __truediv__ __rtruediv__
    __itruediv__ __matmul__ __rmatmul__ __pow__ __neg__ __abs__ __eq__ __ne__ __lt__ __le__ __gt__ __ge__
    all any argmax argmin argsort astype conj conjugate copy cumsum dot dump fill flatten get
    item max mean min nonzero prod put repeat round scatter_add set sort std sum take tobytes tolist trace var
""")
"""Methods of CuPy's arrays that launch or copy."""


class SpreadArrayError(TypeError):
    """A call of CuPy's got an array that lies on several devices."""


@dataclass(frozen=True)
class Call:
    """A call on spread arrays: what, where, and their shapes and types."""

    operation: str
    place: str
    arrays: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.operation} of {', '.join(self.arrays)} at {self.place}"


@dataclass
class Calls:
    """Calls on spread arrays: a count of each, and the bytes of its arrays in all."""

    counts: dict[Call, int] = field(default_factory=lambda: defaultdict(int))
    nbytes: dict[Call, int] = field(default_factory=lambda: defaultdict(int))

    def __call__(self, call: Call, nbytes: int) -> None:
        self.counts[call] += 1
        self.nbytes[call] += nbytes

    def table(self) -> str:
        """Lines of MB, count, operation, arrays and place, those with most bytes first."""
        most = sorted(self.nbytes, key=self.nbytes.__getitem__, reverse=True)
        rows = [f"{self.nbytes[call] / 1e6:12.1f} MB {self.counts[call]:7d} x  {call}" for call in most]
        total = f"{sum(self.nbytes.values()) / 1e6:12.1f} MB {sum(self.counts.values()):7d} x  in all"
        return "\n".join([total, *rows])


@contextmanager
def listed() -> Iterator[Calls]:
    """While the block runs, calls on spread arrays are noted in what it gives."""
    calls = Calls()
    with _watched(calls):
        yield calls


@contextmanager
def refused() -> Iterator[None]:
    """While the block runs, calls on spread arrays raise SpreadArrayError."""

    def refuse(call: Call, nbytes: int) -> None:
        raise SpreadArrayError(
            f"{call}: the first GPU alone does this, and reads the parts of the others over the link; use a "
            "kernel whose launch says what devices share of it (Launch.work), on arrays of empty_field"
        )

    with _watched(refuse):
        yield


@contextmanager
def _watched(note: Callable[[Call, int], None]) -> Iterator[None]:
    watch = _Watch(note)
    with watch.cupy_patched(), watch.launches_patched(), watch.cublas_patched():
        yield


class _Inside(threading.local):
    """Whether this thread is in a call that has been noted: what it is made of is not."""

    noted = False


class _Watch:
    def __init__(self, note: Callable[[Call, int], None]) -> None:
        self._note, self._inside = note, _Inside()
        self._spans: set[Span] = set()
        """That arrays have taken so far."""

    def saw(self, operation: str, arrays: list[cupy.ndarray]) -> None:
        described = tuple(f"{array.dtype}{list(array.shape)}" for array in arrays)
        self._note(Call(operation, _place(), described), sum(array.nbytes for array in arrays))

    @contextmanager
    def once(self) -> Iterator[None]:
        before, self._inside.noted = self._inside.noted, True
        try:
            yield
        finally:
            self._inside.noted = before

    def guarded(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function of CuPy's, or a method, that notes spread arrays among its arguments."""

        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            with self.noted(name, *args, *kwargs.values()):
                return function(*args, **kwargs)

        return call

    def noted(self, name: str, *arguments: Any) -> AbstractContextManager[None]:
        """A block in which nothing more is noted, if spread arrays among the arguments have just been."""
        arrays = [] if self._inside.noted else _spread_among(arguments)
        if not arrays:
            return nullcontext()
        self.saw(name, arrays)
        return self.once()

    @contextmanager
    def cupy_patched(self) -> Iterator[None]:
        def kernel_of(array: cupy.ndarray) -> Any:
            """What CuPy asks arrays for before a kernel of its own; AttributeError lets it go on."""
            if self._inside.noted or not is_large(array):
                raise AttributeError

            def call(kernel: Any, *args: Any, **kwargs: Any) -> Any:
                return self.guarded(f"cupy.{kernel.name.removeprefix('cupy_')}", kernel)(*args, **kwargs)

            return call

        view, put_into = cupy.ndarray.__getitem__, cupy.ndarray.__setitem__

        def getitem(array: cupy.ndarray, key: Any) -> Any:
            with self.noted("ndarray.__getitem__", *([array] if _gathers(key) else [])):
                return view(array, key)

        def setitem(array: cupy.ndarray, key: Any, value: Any) -> None:
            with self.noted("ndarray.__setitem__", array if _gathers(key) else view(array, key), value):
                put_into(array, key, value)

        with _all_patched() as put:
            for kind in ("elementwise", "reduction"):
                put(cupy.ndarray, f"__cupy_override_{kind}_kernel__", property(kernel_of))
            put(cupy.ndarray, "__getitem__", getitem)
            put(cupy.ndarray, "__setitem__", setitem)
            for name in METHODS:
                put(cupy.ndarray, name, self.guarded(f"ndarray.{name}", getattr(cupy.ndarray, name)))
            for module in (cupy, cupy.linalg):
                for name, function in _functions(module):
                    put(module, name, self.guarded(f"{module.__name__}.{name}", function))
            yield

    @contextmanager
    def launches_patched(self) -> Iterator[None]:
        """Launches that share nothing, and spans that CuPy's allocator takes."""
        run_on, take = compilation._run_on, SpanPool.take

        def run_and_see(group: DeviceGroup, launch: Launch, arguments: tuple[Any, ...]) -> None:
            arrays = _spread_among(arguments) if launch.work is None else []
            if arrays:
                self.saw(f"launch of {launch.instance} ({launch.file})", arrays)
            run_on(group, launch, arguments)

        def take_and_see(pool: SpanPool, runs: tuple[Run, ...]) -> tuple[Span, cupy.cuda.MemoryPointer]:
            callers = sys._getframe(1), sys._getframe(2)
            for_cupy = any(frame.f_code is DeviceGroup.malloc.__code__ for frame in callers)
            span, pointer = take(pool, runs)
            self._spans.add(span)
            if for_cupy and not self._inside.noted:
                self.saw("allocation", [cupy.ndarray((span.size,), np.uint8, pointer)])
            return span, pointer

        with _all_patched() as put:
            put(compilation, "_run_on", run_and_see)
            put(SpanPool, "take", take_and_see)
            yield

    @contextmanager
    def cublas_patched(self) -> Iterator[None]:
        """Products by a library that is told addresses, of arrays that were made while the block runs."""

        def product(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
            def call(*args: Any) -> Any:
                if not works_separately() and any(
                    isinstance(each, int) and self.holds(each) for each in args
                ):
                    self._note(Call(f"cublas.{name}", _place(), ("addresses",)), 0)
                return function(*args)

            return call

        library = _cublas()
        with _all_patched() as put:
            for name, function in list(vars(library).items()) if library else []:
                if "gemm" in name and callable(function):
                    put(library, name, product(name, function))
            yield

    def holds(self, address: int) -> bool:
        """True for an address in a span that an array has taken."""
        return any(span.address <= address < span.address + span.size for span in self._spans)


def _cublas() -> ModuleType | None:
    """CuPy's interface to cuBLAS; None where that library is missing, as without a GPU."""
    try:
        return import_module("cupy_backends.cuda.libs.cublas")
    except ImportError:
        return None


def is_large(array: cupy.ndarray) -> bool:
    """True for an array, or a view of one, of which much lies on other devices than the first."""
    return array.nbytes >= PAGE and span_of(array) is not None


def _gathers(key: Any) -> bool:
    """True for an index that is no view: one of numbers or of a mask."""
    keys = key if isinstance(key, tuple) else (key,)
    return any(isinstance(each, (cupy.ndarray, np.ndarray, list)) for each in keys)


def _spread_among(arguments: Iterable[Any]) -> list[cupy.ndarray]:
    given: list[Any] = []
    for argument in arguments:
        given += argument if isinstance(argument, (list, tuple)) else [argument]
    return [each for each in given if isinstance(each, cupy.ndarray) and is_large(each)]


def _functions(module: ModuleType) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Functions of a module of CuPy's that may launch; ufuncs ask arrays themselves."""
    for name, value in list(vars(module).items()):
        plain = callable(value) and not isinstance(value, (type, cupy.ufunc))
        if plain and not name.startswith("_") and name not in VIEWS:
            yield name, value


def _place() -> str:
    """The innermost line of the package on the stack, and its caller in another file; else the caller's."""
    frame: FrameType | None = sys._getframe(1)
    outside, lines = "", list[str]()
    while frame is not None and len(lines) < 2:
        path = Path(frame.f_code.co_filename)
        if path != Path(__file__):
            outside = outside or f"{path.name}:{frame.f_lineno}"
            if PACKAGE in path.parts:
                last = len(path.parts) - 1 - path.parts[::-1].index(PACKAGE)
                name = "/".join(path.parts[last:])
                if not lines or not lines[0].startswith(f"{name}:"):
                    lines.append(f"{name}:{frame.f_lineno}")
        frame = frame.f_back
    return " from ".join(lines) or outside


@contextmanager
def _all_patched() -> Iterator[Callable[[Any, str, Any], None]]:
    with ExitStack() as stack:

        def put(holder: Any, name: str, value: Any) -> None:
            stack.enter_context(patch.object(holder, name, value, create=True))

        yield put
