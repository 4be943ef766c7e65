"""Energies from a matrix of correlators: the generalised eigenvalue problem (arXiv:0902.1265).

With C_AB(t) = sum_n <0|O_A|n> <n|O_B^dag|0> exp(-E_n t) solve

    C(t) v_n = lambda_n(t, t0) C(t0) v_n,    lambda_n = exp(-E_n (t - t0)) but for corrections,

which vanish with as many states as operators. Else those of the effective energy fall as
exp(-(E_{N+1} - E_n) t) for N operators as long as t0 >= t / 2.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from stages.base.errors import InputError
from stages.lqcd.analysis.effective_mass import effective_mass
from stages.lqcd.analysis.jackknife import jackknife_error


class Levels(NamedTuple):
    """Eigenvalues and eigenvectors of a correlation matrix, level by level.

    Eigenvalues float64 ``[..., level, time]``, and v complex128 ``[..., time, operator, level]`` with v^H
    C(t0) v = 1.
    """

    values: NDArray[np.float64]
    vectors: NDArray[np.complex128]


class Energies(NamedTuple):
    """Levels of an ensemble average with jackknife errors, ``[level, time]``, lattice units."""

    eigenvalue: NDArray[np.float64]
    eigenvalue_error: NDArray[np.float64]
    energy: NDArray[np.float64]
    """Effective energies, cosh E(t) = [lambda(t - 1) + lambda(t + 1)] / [2 lambda(t)]; NaN where there is
    none."""
    energy_error: NDArray[np.float64]


def spectrum(correlator: ArrayLike, samples: ArrayLike, t0: int) -> Energies:
    """Energies of a mean ``[operator, operator, time]`` and its jackknife samples ``[sample, ...]``.

    Levels of the samples are numbered as those of the mean are. Errors are NaN where samples are, of a single
    configuration. Raises InputError as `levels_of` does, and for other shapes.
    """
    if np.ndim(correlator) != 3 or np.shape(samples)[1:] != np.shape(correlator):
        raise InputError(
            "the spectrum is that of a correlator [operator, operator, time] and samples [sample, operator, "
            f"operator, time] of it, got shapes {np.shape(correlator)} and {np.shape(samples)}"
        )
    mean = levels_of(correlator, t0)
    if np.isnan(samples).all():
        unknown = np.full_like(mean.values, np.nan)
        return Energies(mean.values, unknown, effective_mass(mean.values), unknown)
    each = levels_of(samples, t0, mean.vectors[t0 + 1])
    return Energies(
        mean.values,
        jackknife_error(each.values),
        effective_mass(mean.values),
        jackknife_error(effective_mass(each.values)),
    )


def levels_of(correlator: ArrayLike, t0: int, reference: NDArray | None = None) -> Levels:
    """Levels of the Hermitian part of C ``[..., operator, operator, time]``.

    By the eigenvectors of L^-1 C(t) L^-H with C(t0) = L L^H.

    Levels are in the order of the eigenvalues at t0 + 1, the lowest energy first. At other times each is the
    one whose vectors overlap with those most, so that levels may cross. reference: vectors
    ``[operator, level]`` that say which level is which, instead of those of t0 + 1. Raises InputError for a
    t0 that is none of the times or the last one, for values that are not finite, and where C(t0) is not
    positive definite.
    """
    shape = np.shape(correlator)
    if len(shape) < 3 or shape[-3] != shape[-2]:
        raise InputError(f"a matrix of correlators is [..., operator, operator, time], got shape {shape}")
    by_time = np.moveaxis(np.asarray(correlator, complex), -1, -3)
    _check_finite(by_time)
    times = by_time.shape[-3]
    if not 0 <= t0 < times - 1:
        raise InputError(f"t0 = {t0} of the eigenvalue problem is none of 0 to {times - 2}")
    hermitian = (by_time + by_time.conj().swapaxes(-1, -2)) / 2
    scale = _scale(hermitian[..., t0, :, :])
    scaled = hermitian * (scale[..., :, None] * scale[..., None, :])[..., None, :, :]
    metric = scaled[..., t0, :, :]
    _check_positive(metric, t0)
    whiten = np.linalg.inv(np.linalg.cholesky(metric))[..., None, :, :]
    values, rotated = np.linalg.eigh(whiten @ scaled @ whiten.conj().swapaxes(-1, -2))
    vectors = scale[..., None, :, None] * (whiten.conj().swapaxes(-1, -2) @ rotated[..., ::-1])
    anchor = vectors[..., t0 + 1, :, :] if reference is None else reference
    overlaps = anchor.conj().swapaxes(-1, -2) @ hermitian[..., t0, :, :]
    return _tracked(values[..., ::-1], vectors, np.abs(overlaps[..., None, :, :] @ vectors))


def _tracked(values: NDArray, vectors: NDArray, overlaps: NDArray) -> Levels:
    """Values ``[..., time, level]`` and vectors in the order that overlaps say.

    Overlaps are ``[..., time, level, eigenvalue]``; the order is that of the largest sum of squares.
    """
    size = overlaps.shape[-1]
    squares = overlaps.reshape(-1, size, size) ** 2
    order = np.stack([scipy.optimize.linear_sum_assignment(each, maximize=True)[1] for each in squares])
    order = order.reshape(values.shape)
    tracked = np.take_along_axis(values, order, -1)
    return Levels(np.moveaxis(tracked, -1, -2), np.take_along_axis(vectors, order[..., None, :], -1))


def _scale(metric: NDArray) -> NDArray[np.float64]:
    """Factors of the operators that make |C_AA| = 1, for the rounding; energies know nothing of them."""
    diagonal = np.abs(np.diagonal(metric, axis1=-2, axis2=-1))
    return 1 / np.sqrt(np.where(diagonal > 0, diagonal, 1))


def _check_finite(by_time: NDArray) -> None:
    if len(places := np.argwhere(~np.isfinite(by_time))):
        *sample, time, row, column = places[0]
        where = f" of jackknife sample {sample[0]}" if sample else ""
        raise InputError(
            f"the correlation matrix{where} has {by_time[tuple(places[0])]} at t = {time} for operators "
            f"{row} and {column}: leave out the configurations whose correlators are not finite"
        )


def _check_positive(metric: NDArray, t0: int) -> None:
    smallest = np.linalg.eigvalsh(metric)[..., 0]
    lowest = float(np.min(smallest))
    if not lowest > metric.shape[-1] * np.finfo(float).eps:
        where = f" of jackknife sample {int(np.argmin(smallest))}" if smallest.ndim == 1 else ""
        raise InputError(
            f"the correlation matrix at t0 = {t0}{where} is not positive definite: its smallest eigenvalue "
            f"is {lowest:.3g}, operators normalised to |C_AA| = 1; take a smaller t0, operators that "
            "differ more, fewer of them, or more configurations"
        )
