"""Every field is read once, but y of sums once for each group of a basis; results stay on the device."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import Any

import cupy
import numpy as np

from stages.lqcd.kernels.bicgstab_update import BiCGstabCoefficients
from stages.lqcd.kernels.clover import HERMITIAN
from stages.lqcd.kernels.cuda.clover import PackedClover
from stages.lqcd.kernels.cuda.columns import grid_sums, site_shape
from stages.lqcd.kernels.cuda.compile import run
from stages.lqcd.kernels.cuda.devices.partition import RowWork
from stages.lqcd.kernels.cuda.launch import Launch, narrowable
from stages.lqcd.kernels.cuda.short_numbers import codes_and_scales
from stages.lqcd.kernels.half_update import MOST_FIELDS, HalfBasis
from stages.lqcd.kernels.short_numbers import HalfField

SUMS = {"dot": 2, "alpha": 2, "omega": 6, "residual": 1}
"""Doubles of a right-hand side that a kernel adds up."""

DOTTED = (1, 2, 4, 6)
"""Fields of a basis whose sums a thread keeps: all that GCR with multigrid has, and none is spilled."""

BASIS_SUMS = {"combine": 3, "update": 1}
"""Doubles of a right-hand side that an update adds up."""


def half_dot(x: HalfField, y: HalfField) -> cupy.ndarray:
    sums = cupy.empty(y.shape[2], np.complex128)
    _sum("dot", (x, y), sums)
    return sums


def half_update(
    y: HalfField, xs: Sequence[HalfField], a: cupy.ndarray, scale: cupy.ndarray | None = None
) -> None:
    sites, _, n = y.shape
    factor = np.uintp(0) if scale is None else cupy.ascontiguousarray(scale, np.complex128)
    coefficients = cupy.ascontiguousarray(a, np.complex128)
    operands = *codes_and_scales(y), *_operands(xs)
    run(half_update_launch(n, sites, len(xs)), *operands, coefficients, factor, np.int64(sites))


def half_alpha(shadow: HalfField, v: HalfField, coefficients: BiCGstabCoefficients) -> None:
    _sum("alpha", (shadow, v), coefficients.numbers, coefficients.reals)


def half_omega(t: HalfField, shadow: HalfField, r: HalfField, coefficients: BiCGstabCoefficients) -> None:
    _sum("omega", (t, shadow, r), coefficients.numbers, coefficients.reals)


def half_residual(
    y: cupy.ndarray, p: HalfField, r: HalfField, t: HalfField, coefficients: BiCGstabCoefficients
) -> None:
    _sum("residual", (p, r, t), coefficients.numbers, coefficients.reals, first=(y,))


def half_norms(
    x: HalfField, norms2: cupy.ndarray, clover: PackedClover | None, out: HalfField | None
) -> None:
    sites, _, n = x.shape
    kernel = half_norms_launch(n, sites, clover is not None, clover.kind if clover else HERMITIAN)
    operands = *codes_and_scales(x), clover.matrices if clover else np.uintp(0), *codes_and_scales(out)
    run(kernel, *operands, norms2, *grid_sums(kernel, n), np.int64(sites))


def _sum(
    name: str, fields: Sequence[HalfField], *results: cupy.ndarray, first: Sequence[cupy.ndarray] = ()
) -> None:
    sites, _, n = fields[0].shape
    kernel = half_reduction_launch(name, n, sites)
    operands = (*first, *(each for field in fields for each in codes_and_scales(field)))
    run(kernel, *operands, *results, *grid_sums(kernel, SUMS[name] * n), np.int64(sites))


def _operands(xs: Sequence[HalfField]) -> tuple[Any, ...]:
    """Codes and scales of all fields that an update has room for."""
    absent = [None] * (MOST_FIELDS - len(xs))
    return tuple(each for x in (*xs, *absent) for each in codes_and_scales(x))


@narrowable
def half_reduction_launch(name: str, n: int, sites: int) -> Launch:
    """One of the `SUMS`; grid (parts, 1)."""
    shape, work = site_shape(n), RowWork(sites, sums=True, reads=name != "residual")
    return shape.sums("half_update.cu", f"half_{name}<{n}, {shape.groups}>", work)


@narrowable
def half_norms_launch(n: int, sites: int, clover: bool, kind: int = HERMITIAN) -> Launch:
    """The sum of squares, and with clover matrices their product; grid (parts, 1)."""
    shape, work = site_shape(n), RowWork(sites, sums=True, reads=not clover)
    return shape.sums("half_cg.cu", f"half_norms<{n}, {shape.groups}, {str(clover).lower()}, {kind}>", work)


@narrowable
def half_update_launch(n: int, sites: int, fields: int) -> Launch:
    """The update by so many fields."""
    shape = site_shape(n)
    return shape.once("half_update.cu", f"half_update<{n}, {shape.groups}, {fields}>", sites)


def half_basis_dots(xs: HalfBasis, y: cupy.ndarray) -> cupy.ndarray:
    sites, _, n = y.shape
    if not len(xs):
        return cupy.empty((0, n), np.complex128)
    kernel = half_basis_dots_launch(n, sites, len(xs))
    sums, workspace = cupy.empty((len(xs), n), np.complex128), grid_sums(kernel, 2 * DOTTED[-1] * n)
    run(kernel, xs.codes, xs.scales, y, sums, *workspace, np.int64(sites), np.int32(len(xs)))
    return sums


def half_basis_combine(
    y: cupy.ndarray, xs: HalfBasis, a: cupy.ndarray, out: HalfField, r: cupy.ndarray
) -> cupy.ndarray:
    sites, _, n = y.shape
    kernel, sums = half_basis_update_launch("combine", n, sites, len(xs)), cupy.empty((2, n), np.complex128)
    operands = (y, xs.codes, xs.scales, cupy.ascontiguousarray(a, np.complex128), out.codes, out.scales, r)
    run(kernel, *operands, sums, *grid_sums(kernel, 3 * n), np.int64(sites), np.int32(len(xs)))
    return sums


def half_basis_update(y: cupy.ndarray, xs: HalfBasis, a: cupy.ndarray) -> cupy.ndarray:
    sites, _, n = y.shape
    kernel, norms2 = half_basis_update_launch("update", n, sites, len(xs)), cupy.empty(n)
    operands = y, xs.codes, xs.scales, cupy.ascontiguousarray(a, np.complex128)
    run(kernel, *operands, norms2, *grid_sums(kernel, n), np.int64(sites), np.int32(len(xs)))
    return norms2


@narrowable
def half_basis_dots_launch(n: int, sites: int, count: int) -> Launch:
    """Sums over a basis of `count` fields; grid (parts, groups of fields)."""
    slices = ceil(count / DOTTED[-1])
    fields = next(size for size in DOTTED if size * slices >= count)
    shape, work = site_shape(n), RowWork(sites, sums=True, reads=True)
    return shape.sums("half_basis.cu", f"half_basis_dots<{n}, {fields}, {shape.groups}>", work, slices)


@narrowable
def half_basis_update_launch(name: str, n: int, sites: int, count: int) -> Launch:
    """One of the `BASIS_SUMS` over `count` fields; grid (parts, 1)."""
    shape, shared = site_shape(n), count * n * np.dtype(np.complex64).itemsize
    kernel, work = f"half_basis_{name}<{n}, {shape.groups}>", RowWork(sites, sums=True)
    return shape.sums("half_basis.cu", kernel, work, shared_bytes=shared)
