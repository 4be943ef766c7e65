"""The library that arrays live in, and the one place where kernels are chosen: `kernel`.

NumPy arrays are computed on by `stages.lqcd.kernels.cpu`, CuPy arrays by `stages.lqcd.kernels.cuda`. Inside
``with kernels_of("reference")`` NumPy arrays are given to the plain NumPy kernels, the oracle of both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from stages.base.errors import InputError
from stages.base.gpus import imported_cupy

Array: TypeAlias = NDArray[Any]
"""A NumPy or a CuPy array; functions follow the kind given. CuPy's has the interface of NumPy's, whose types
stand for both.
"""

Implementation: TypeAlias = Callable[..., Any]

_PACKAGE = __name__.rpartition(".")[0]

_chosen: dict[tuple[str, type], Implementation] = {}
_on_host = "cpu"
_around: Callable[[Implementation], Implementation] | None = None


def kernel(name: str, kind: type) -> Implementation:
    """The implementation of a kernel, named ``family.function``, for an operand of this type.

    kind: the type of an array, or of what a `pack` function of the family returned, which stays with the
    package that packed it. Raises TypeError for what is no array.
    """
    try:
        return _chosen[name, kind]
    except KeyError:
        return _choose(name, kind)


@contextmanager
def kernels_of(package: str) -> Iterator[None]:
    """While the block runs, NumPy arrays go to the kernels of this package, 'cpu' or 'reference'."""
    global _on_host
    before, _on_host = _on_host, package
    _chosen.clear()
    try:
        yield
    finally:
        _on_host = before
        _chosen.clear()


@contextmanager
def around_kernels(wrap: Callable[[Implementation], Implementation]) -> Iterator[None]:
    """While the block runs, every kernel is called through ``wrap(implementation)``, made once for each."""
    global _around
    before, _around = _around, wrap
    _chosen.clear()
    try:
        yield
    finally:
        _around = before
        _chosen.clear()


def kernels_are_watched() -> bool:
    """True inside a block of `around_kernels`."""
    return _around is not None


def _choose(name: str, kind: type) -> Implementation:
    implementation = implementation_of(name, _package_of(kind))
    if _around is not None:
        implementation = _around(implementation)
    _chosen[name, kind] = implementation
    return implementation


def implementation_of(name: str, package: str) -> Implementation:
    """A function of a package.

    Where the oracle has none of its own, that of the processor, and where this has none the array expression.
    """
    family, function = name.split(".")
    if package == "reference":
        try:
            return getattr(import_module(f"{_PACKAGE}.reference.{family}"), function)
        except (ModuleNotFoundError, AttributeError):
            package = "cpu"
    module = import_module(f"{_PACKAGE}.{package}.{family}")
    if package == "cpu" and not hasattr(module, function):
        module = import_module(f"{_PACKAGE}.expressions")
    return getattr(module, function)


def _package_of(kind: type) -> str:
    if issubclass(kind, (np.ndarray, np.generic)):
        return _on_host
    if kind.__module__.startswith(f"{_PACKAGE}."):
        return kind.__module__.removeprefix(f"{_PACKAGE}.").split(".")[0]
    if kind.__module__.split(".")[0] == "cupy":
        return "cuda"
    raise _no_array(kind)


def array_module(array: Array) -> ModuleType:
    """The library an array belongs to: `numpy` or `cupy`; TypeError for anything else."""
    if isinstance(array, (np.ndarray, np.generic)):
        return np
    return _library_of(type(array))


@cache
def _library_of(kind: type) -> ModuleType:
    if kind.__module__.split(".")[0] == "cupy":
        return import_module("cupy")
    raise _no_array(kind)


def is_contiguous(array: Any) -> bool:
    """True if a NumPy or CuPy array is C-contiguous; CuPy would make an object of its flags to say so."""
    return bool(array.flags.c_contiguous if isinstance(array, np.ndarray) else array._c_contiguous)


def _no_array(kind: type) -> TypeError:
    return TypeError(f"a field must be a NumPy or a CuPy array, got {kind.__module__}.{kind.__name__}")


def array_module_of(backend: str) -> ModuleType:
    """The library of a backend's arrays: `numpy` for 'cpu', `cupy` for 'cuda'."""
    return import_module("cupy") if backend == "cuda" else np


def gpu_library() -> ModuleType:
    """`cupy`, where it finds a GPU. Raises InputError."""
    cupy = imported_cupy()
    if not cupy.is_available():
        raise InputError("backend 'cuda' needs a CUDA device and its driver, and CuPy finds none here")
    return cupy


def as_numpy(array: Array) -> NDArray:
    """A small array as a NumPy array; copied only if it lives on a device. For fields: `copy_to_host`."""
    device: Any = array
    return array if array_module(array) is np else device.get()


def to_device_like(array: Array, like: Array) -> Array:
    """`array` in the library of `like`; copied only if it lives elsewhere."""
    if array_module(like) is np:
        return as_numpy(array)
    return array_module(like).asarray(array)
