"""Memory of fields on one GPU, or on those that share the lattice."""

from __future__ import annotations

import cupy
from numpy.typing import DTypeLike

from stages.lqcd.kernels.cuda.devices.group import current_group, spread_in_process
from stages.lqcd.lattice.geometry import Lattice


def empty_field(shape: tuple[int, ...], dtype: DTypeLike) -> cupy.ndarray:
    group = current_group()
    return cupy.empty(shape, dtype) if group is None else group.empty(shape, dtype)


def spread(lattice: Lattice) -> None:
    spread_in_process(lattice)


def zero_field(shape: tuple[int, ...], dtype: DTypeLike) -> cupy.ndarray:
    group = current_group()
    return cupy.zeros(shape, dtype) if group is None else group.zeros(shape, dtype)
