"""Library and kernels that own an array: NumPy and `stages.lqcd.kernels.cpu`, CuPy and
`stages.lqcd.kernels.cuda`.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = Any
"""A NumPy or a CuPy array; functions follow the kind given."""

Kernels: TypeAlias = ModuleType
"""A kernel package: `stages.lqcd.kernels.reference`, `.cpu` or `.cuda`."""


def array_module(array: Array) -> ModuleType:
    """The library an array belongs to: `numpy` or `cupy`; TypeError for anything else."""
    if isinstance(array, (np.ndarray, np.generic)):
        return np
    if type(array).__module__.split(".")[0] == "cupy":
        return import_module("cupy")
    raise TypeError(
        f"a field must be a NumPy or a CuPy array, got {type(array).__module__}.{type(array).__name__}"
    )


def array_module_of(backend: str) -> ModuleType:
    """The library of a backend's arrays: `numpy` for 'cpu', `cupy` for 'cuda'."""
    return import_module("cupy") if backend == "cuda" else np


def kernels_for(array: Array) -> Kernels:
    """The kernel package that runs where `array` lives; it is imported on first use."""
    package = "cpu" if array_module(array) is np else "cuda"
    return import_module(f"stages.lqcd.kernels.{package}")


def to_host(array: Array) -> NDArray:
    """The array as a NumPy array; copied only if it lives on a device."""
    return array if array_module(array) is np else array.get()


def to_device_like(array: Array, like: Array) -> Array:
    """`array` in the library of `like`; copied only if it lives elsewhere."""
    if array_module(like) is np:
        return to_host(array)
    return array_module(like).asarray(array)
