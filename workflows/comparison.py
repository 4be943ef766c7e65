"""Differences of two results in units of their errors, or exactly."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray
from numpy.typing import NDArray
from scipy import special

from stages.base.errors import InputError
from stages.lqcd.analysis.jackknife import jackknife_covariance, jackknife_error, jackknife_samples
from workflows.exports import BOOTSTRAP, SAMPLES, labels_along

ERROR = "_error"
"""End of the name of an array's errors."""
LEAST_PROBABILITY = 1e-3
"""Probability of deviations as large as these below which two results differ."""
ROUNDING = 1e-12
"""Of an array's largest number: numbers without an error may differ by so much."""
NO_ERROR = 1e-14
"""Of a number's own size: errors up to this are rounding."""


@dataclass(frozen=True)
class ArrayComparison:
    """An array of two results; what needs errors is null where there are none, or none were asked for."""

    node: str
    array: str
    numbers: int
    """Those compared; a complex one is two."""
    largest_difference: float
    """Of the largest number of the array."""
    degrees_of_freedom: int
    """Numbers with an error."""
    chi_squared: float | None
    """Per degree of freedom."""
    correlated: bool
    """Whether chi squared takes the covariance of the numbers, fewer than half as many as the samples."""
    largest_deviation: float | None
    """In standard deviations."""
    where: str
    """Labels of the number that deviates most."""
    paired: bool
    """Whether errors are the jackknife's of the difference; else the two results count as independent."""
    samples: int
    """Bins of configurations that the errors are of; 0 where nothing says it."""
    probability: float | None
    """Of a chi squared as large (Hotelling's); uncorrelated, of a largest deviation as large (Student's)."""
    agrees: bool


def compared(a: xarray.Dataset, b: xarray.Dataset, rounding: float | None) -> list[ArrayComparison]:
    """Arrays of two results, number by number.

    With jackknife samples of the same configurations errors are those of the difference; otherwise results
    count as independent. Arrays with a dimension `config` and no samples are averaged over it (and over
    `noise`), with jackknife errors.

    rounding: largest difference, of the largest number of an array, of what counts as equal; no errors then.

    Raises:
        InputError: arrays, shapes or labels differ, or there are no errors to compare by.
    """
    a, b = a.load(), b.load()
    _refuse_others(a, b, exact=rounding is not None)
    if rounding is not None:
        return [_exactly(a, b, str(name), rounding) for name in a.data_vars]
    ends = (SAMPLES, ERROR)
    names = [str(name) for name in a.data_vars if not str(name).endswith(ends) and a[name].dtype.kind in "fc"]
    found = [each for name in names if (each := _by_errors(a, b, name))]
    if not found:
        raise InputError(
            f"{a.attrs['node']} and {b.attrs['node']} have no errors to compare by: give --rounding X for "
            "the largest relative difference, or take averages of at least two bins of configurations"
        )
    return found


def _refuse_others(a: xarray.Dataset, b: xarray.Dataset, exact: bool) -> None:
    """Raise InputError where the results are not of the same arrays, shapes and labels."""
    if problems := list(_others(a, b, exact)):
        which = (
            a.attrs["node"]
            if a.attrs["node"] == b.attrs["node"]
            else f"{a.attrs['node']} and {b.attrs['node']}"
        )
        raise InputError(
            f"{which}: " + "; ".join(problems) + ": only numbers of the same meaning are compared"
        )


def _others(a: xarray.Dataset, b: xarray.Dataset, exact: bool) -> Iterator[str]:
    for ours, theirs, which in ((a, b, "first"), (b, a, "second")):
        if alone := [str(name) for name in ours.data_vars if name not in theirs]:
            yield f"only the {which} result has {', '.join(alone)}"
    free = set() if exact else {"config", "sample"}
    for name in (name for name in a.data_vars if name in b):
        if a[name].dims != b[name].dims:
            yield f"{name} is {list(a[name].dims)} in the first and {list(b[name].dims)} in the second"
    for dim in (dim for dim in a.sizes if dim in b.sizes and dim not in free):
        labels, others = labels_along(a, str(dim)), labels_along(b, str(dim))
        if len(labels) != len(others):
            yield f"{dim} has {len(labels)} values in the first and {len(others)} in the second"
        elif labels != others:
            first, second = next(pair for pair in zip(labels, others, strict=True) if pair[0] != pair[1])
            yield f"{dim} has the label {first!r} in the first and {second!r} in the second"


def _exactly(a: xarray.Dataset, b: xarray.Dataset, name: str, rounding: float) -> ArrayComparison:
    ours, theirs = map(_flat, _numbers(a[name].values, b[name].values))
    differences = _differences(ours, theirs)
    largest = float(differences.max(initial=0.0)) / _scale(ours, theirs)
    facts: dict[str, Any] = dict.fromkeys(("chi_squared", "largest_deviation", "probability"))
    return ArrayComparison(
        node=str(a.attrs["node"]),
        array=name,
        numbers=ours.size,
        largest_difference=largest,
        degrees_of_freedom=0,
        correlated=False,
        paired=False,
        samples=0,
        where=_where(a[name], a, int(differences.argmax())) if largest else "",
        agrees=largest <= rounding,
        **facts,
    )


def _differences(ours: NDArray, theirs: NDArray) -> NDArray:
    """Absolute differences; NaN equals NaN and nothing else."""
    same = (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))
    with np.errstate(invalid="ignore"):
        return np.where(same, 0.0, np.nan_to_num(abs(ours - theirs), nan=np.inf))


def _scale(*values: NDArray) -> float:
    """The largest number; 1 where there is none but 0."""
    numbers = abs(np.concatenate(values))
    return float(numbers[np.isfinite(numbers)].max(initial=0.0)) or 1.0


def _by_errors(a: xarray.Dataset, b: xarray.Dataset, name: str) -> ArrayComparison | None:
    """The comparison of an array; None where it has no errors."""
    ours, theirs = _estimate(a, name), _estimate(b, name)
    if ours is None or theirs is None or not ours.means.size:
        return None
    sigma, count = np.hypot(ours.errors, theirs.errors), min(ours.count, theirs.count)
    fluctuations = [each.samples for each in (ours, theirs) if len(each.samples)]
    sampled = len(fluctuations) == 2
    same = a.attrs.get("configurations") == b.attrs.get("configurations")
    if paired := same and sampled and len(ours.samples) == len(theirs.samples):
        fluctuations = [ours.samples - theirs.samples]
        sigma = jackknife_error(fluctuations[0])
    differences, scale = _differences(ours.means, theirs.means), _scale(ours.means, theirs.means)
    size = np.maximum(abs(ours.means), abs(theirs.means))  # not the array's: C(t) falls by many decades
    if a[name].dtype.kind == "c":
        size = np.tile(np.hypot(*size.reshape(2, -1)), 2)
    known = np.isfinite(differences) & (sigma > NO_ERROR * size)
    rest = ~known & (
        np.isfinite(sigma) | np.isinf(differences)
    )  # must be equal; of the others nothing is known
    deviations = np.where(known, differences / np.where(known, sigma, 1.0), 0.0)
    dof, largest = int(known.sum()), float(deviations.max(initial=0.0))
    square, correlated = float((deviations**2).sum()), False
    if sampled and 0 < 2 * dof < count:  # a matrix of few numbers
        covariance = np.sum([jackknife_covariance(each[:, known]) for each in fluctuations], axis=0)
        correlated = _regular(covariance)
    if correlated:
        gap = (ours.means - theirs.means)[known]
        square = float(gap @ np.linalg.solve(covariance, gap))
        probability = float(special.fdtrc(dof, count - dof, square * (count - dof) / (dof * (count - 1))))
    else:
        tail = special.stdtr(count - 1, -largest) if count else special.ndtr(-largest)
        probability = min(1.0, 2 * dof * float(tail)) if dof else 1.0
    unequal = np.where(rest & (differences > ROUNDING * scale), differences, 0.0)
    within = probability >= LEAST_PROBABILITY
    place = int((unequal if within and unequal.any() else deviations if dof else differences).argmax())
    return ArrayComparison(
        node=str(a.attrs["node"]),
        array=name,
        numbers=differences.size,
        largest_difference=float(differences.max()) / scale,
        degrees_of_freedom=dof,
        chi_squared=square / dof if dof else None,
        correlated=correlated,
        largest_deviation=largest if dof else None,
        where=_where(_averaged(a[name])[0], a, place) if differences.any() else "",
        paired=paired,
        samples=count,
        probability=probability,
        agrees=within and not unequal.any(),
    )


@dataclass(frozen=True)
class _Estimate:
    """Means and errors ``[number]``, and jackknife samples ``[sample, number]``."""

    means: NDArray
    errors: NDArray
    samples: NDArray
    """None of them where the errors are known alone."""
    count: int
    """Bins of configurations that the errors are of; 0 where nothing says it."""


def _estimate(data: xarray.Dataset, name: str) -> _Estimate | None:
    """Means and errors of an array; None where it has none."""
    array, samples = _averaged(data[name])
    if f"{name}{SAMPLES}" in data and data.attrs.get("stage") != BOOTSTRAP:
        samples = data[f"{name}{SAMPLES}"].transpose("sample", *array.dims).values
    means = _flat(array.values)
    if samples is not None and len(samples) > 1 and not np.isnan(samples).all():
        flat = np.stack([_flat(each) for each in samples])
        return _Estimate(means, jackknife_error(flat), flat, len(flat))
    if f"{name}{ERROR}" in data and np.isfinite(data[f"{name}{ERROR}"]).any():
        errors = data[f"{name}{ERROR}"].transpose(*array.dims).values.ravel()
        drawn = data.attrs.get("stage") == BOOTSTRAP
        bins = len(data.attrs.get("configurations", ())) if drawn else data.sizes.get("sample", 0)
        return _Estimate(means, np.resize(errors, means.size), np.empty((0, means.size)), bins)
    return None


def _averaged(array: xarray.DataArray) -> tuple[xarray.DataArray, NDArray | None]:
    """The average of what is of each configuration, and its jackknife samples; others as they are."""
    if "config" not in array.dims:
        return array, None
    array = array.mean("noise") if "noise" in array.dims else array
    array = array.transpose("config", ...)
    return array.mean("config"), jackknife_samples(array.values)


def _regular(covariance: NDArray) -> bool:
    """True for a covariance of numbers of which none is a combination of the others."""
    sigma = np.sqrt(np.diagonal(covariance))
    return bool(np.linalg.eigvalsh(covariance / np.outer(sigma, sigma))[0] > 1e-9)


def _flat(values: NDArray) -> NDArray:
    """Real numbers, the imaginary parts after the real ones."""
    flat = np.asarray(values).ravel()
    if flat.dtype.kind == "c":
        return np.concatenate([flat.real, flat.imag])
    return flat.astype(float)


def _numbers(ours: NDArray, theirs: NDArray) -> NDArray:
    """Arrays of numbers as they are; of others the place of each value among those of both."""
    both = np.stack([ours, theirs])
    if both.dtype.kind in "fciub":
        return both
    return np.unique(both, return_inverse=True)[1].reshape(both.shape)


def _where(array: xarray.DataArray, data: xarray.Dataset, place: int) -> str:
    at = np.unravel_index(place % array.size, array.shape)
    labels = (labels_along(data, str(dim))[number] for dim, number in zip(array.dims, at, strict=True))
    named = " ".join(f"{dim}={label}" for dim, label in zip(array.dims, labels, strict=True))
    return f"{named} (imaginary)" if place >= array.size else named
