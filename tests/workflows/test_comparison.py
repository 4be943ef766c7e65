"""Comparisons of results whose statistics are known, and what cannot be compared."""

from __future__ import annotations

import numpy as np
import pytest
import xarray
from scipy import special

from stages.base.errors import InputError
from stages.lqcd.analysis.jackknife import jackknife_samples
from workflows.commands.compare import _text
from workflows.comparison import compared


def average(
    seed: int,
    configurations: int = 40,
    times: int = 6,
    shift: float = 0.0,
    noise: float = 1.0,
    gauge: int = 5,
) -> xarray.Dataset:
    """An average over configurations whose fluctuations are of the gauge field and of noise."""
    field = np.random.default_rng(gauge).normal(size=(configurations, 2, times)).cumsum(axis=2)
    data = field + noise * np.random.default_rng(seed).normal(size=field.shape) + shift
    return xarray.Dataset(
        {
            "correlator": (("flavour", "time"), data.mean(axis=0)),
            "correlator_samples": (("sample", "flavour", "time"), jackknife_samples(data)),
        },
        {"flavour": ["light", "strange"], "time": np.arange(times)},
        {"node": "average", "stage": "a", "configurations": [f"{gauge}-{k}" for k in range(configurations)]},
    )


@pytest.mark.parametrize(("times", "correlated"), [(6, True), (30, False)])
@pytest.mark.parametrize("paired", [True, False])
def test_chi_squared_is_one_per_degree_of_freedom(times: int, correlated: bool, paired: bool) -> None:
    """Of equal expectation values, on the same configurations or others; a shift of 5 sigma is found."""
    found = []
    for k in range(60):
        one = average(k, times=times, gauge=2 * k)
        other = average(k + 100, times=times, gauge=2 * k + (0 if paired else 1))
        found += compared(one, other, None)[:1]
    assert {(each.correlated, each.paired, each.samples) for each in found} == {(correlated, paired, 40)}
    assert {each.degrees_of_freedom for each in found} == {2 * times}
    assert 0.8 < np.mean([each.chi_squared for each in found]) < (2.2 if correlated else 1.2)
    assert max(each.largest_deviation for each in found) < 6
    if correlated:  # of many numbers, each with all of them, the probability is a bound
        assert np.mean([each.probability for each in found]) == pytest.approx(0.5, abs=0.13)
    assert all(each.agrees for each in found)
    apart = compared(average(3), average(4, shift=1.5), None)[0]
    assert not apart.agrees and apart.largest_deviation > 4 and apart.where.startswith("flavour=")


@pytest.mark.parametrize(("others", "paired"), [(40, True), (40, False), (9, False)])
def test_one_number_has_the_probability_of_students_t(others: int, paired: bool) -> None:
    """Hotelling's of one number; with as many degrees of freedom as the smaller of two ensembles has."""
    one, other = average(3, gauge=3), average(4, configurations=others, gauge=3 if paired else 4)
    (found,) = compared(*(each.isel(flavour=[0], time=[2]) for each in (one, other)), None)
    assert (found.correlated, found.paired, found.samples) == (True, paired, others)
    assert found.chi_squared == pytest.approx(found.largest_deviation**2)
    tail = special.stdtr(others - 1, -found.largest_deviation)
    assert found.probability == pytest.approx(2 * tail) and found.agrees


def test_a_copy_of_a_number_is_no_further_degree_of_freedom_of_the_covariance() -> None:
    (found,) = compared(*(average(seed).isel(time=[1, 1, 2]) for seed in (3, 4)), None)
    assert (found.correlated, found.degrees_of_freedom) == (False, 6) and found.agrees


def test_parts_of_complex_numbers_have_an_error_beyond_the_rounding_of_the_number() -> None:
    """An imaginary part of rounding has none, and is named where it differs."""
    one, two = (average(seed).map(lambda values: values * (1 + 1e-17j)) for seed in (3, 4))
    one, two = (each.assign_attrs(average(3).attrs) for each in (one, two))
    (found,) = compared(one, two, None)
    assert (found.numbers, found.degrees_of_freedom) == (24, 12) and "imaginary" not in found.where
    (found,) = compared(one, two + 2j * (two.time == 3), None)
    assert not found.agrees and found.where == "flavour=light time=3 (imaginary)"


def test_samples_of_a_bootstrap_have_its_errors_and_as_many_bins_as_configurations() -> None:
    def drawn(seed: int) -> xarray.Dataset:
        data = average(seed)
        samples = data.correlator.values + np.random.default_rng(seed).normal(size=(100, 2, 6))
        data = data.drop_vars("correlator_samples").assign(
            correlator_samples=(("sample", "flavour", "time"), samples),
            correlator_error=(("flavour", "time"), np.full((2, 6), 0.25)),
        )
        return data.assign_attrs(average(seed).attrs, stage="bootstrap_average")

    one, two = drawn(3), drawn(4)
    (found,) = compared(one, two, None)
    largest = float(abs(one.correlator - two.correlator).max()) / np.hypot(0.25, 0.25)
    assert (found.samples, found.paired, found.correlated) == (40, False, False)
    assert found.largest_deviation == pytest.approx(largest)


@pytest.mark.parametrize("size", [1e6, 1e-20])
def test_numbers_without_an_error_may_differ_by_rounding_of_the_largest(size: float) -> None:
    data = average(7).isel(time=[0, 1]) * size
    for name in ("correlator", "correlator_samples"):
        data[name][{"time": 1}] = 0
    data = data.assign_attrs(average(7).attrs)
    largest = float(abs(data.correlator).max())
    for by, agrees in ((1e-13, True), (1e-11, False)):
        other = data.copy(deep=True)
        for name in ("correlator", "correlator_samples"):
            other[name][{"time": 1}] = by * largest
        (found,) = compared(data, other, None)
        assert found.agrees == agrees and found.largest_difference == pytest.approx(by)


def test_a_result_is_equal_to_itself() -> None:
    data = average(7)
    (found,) = compared(data, data.copy(deep=True), None)
    assert found.agrees and found.degrees_of_freedom == 0 and found.largest_difference == 0
    near = data.assign(correlator=data.correlator * (1 + 1e-15))
    for rounding, agrees in ((1e-14, True), (0.0, False)):
        found, samples = compared(data, near, rounding)
        assert (found.agrees, samples.agrees) == (agrees, True) and 0 < found.largest_difference < 1e-14
    lost = data.assign(correlator=data.correlator.where(data.time > 0))
    assert [each.agrees for each in compared(data, lost, None)] == [False]
    assert [each.agrees for each in compared(lost, lost, 0.0)] == [True, True]


def test_what_is_of_each_configuration_is_averaged() -> None:
    def loops(seed: int) -> xarray.Dataset:
        numbers = np.random.default_rng(seed).normal(size=(2, 9, 3, 5))
        data = {"current": (("noise", "config", "flavour", "time"), numbers[0] + 1j * numbers[1])}
        shape = {"noise": 9, "config": 3}
        return xarray.Dataset(
            {"current": (("config", "noise", "time"), data["current"][1].reshape(9, 3, 5))},
            {"config": [f"c{k}" for k in range(9)]},
            {"node": "loops", "stage": "loops", "shape": shape},
        )

    (found,) = compared(loops(3), loops(4), None)
    assert found.agrees and found.numbers == found.degrees_of_freedom == 10 and found.chi_squared < 4


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda data: data.isel(time=slice(4)), "time has 6 values in the first and 4 in the second"),
        (
            lambda data: data.assign_coords(flavour=["light", "charm"]),
            "flavour has the label 'strange' in the first",
        ),
        (
            lambda data: data.rename(correlator="loops"),
            "only the first result has correlator; only the second",
        ),
        (
            lambda data: data.transpose(),
            "correlator is ['flavour', 'time'] in the first and ['time', 'flavour']",
        ),
        (lambda data: data.drop_vars("correlator_samples"), "only the first result has correlator_samples"),
        (lambda data: data.isel(sample=slice(39)), "sample has 40 values in the first and 39 in the second"),
    ],
)
def test_others_are_refused(change: object, said: str) -> None:
    with pytest.raises(InputError) as error:
        compared(average(1), change(average(1)), 0.0 if "sample has" in said else None)  # type: ignore[operator]
    assert str(error.value).startswith("average: ") and said in str(error.value)


def test_results_without_errors_and_texts_are_compared_exactly() -> None:
    one = average(1, configurations=1)
    with pytest.raises(InputError, match="no errors to compare by: give --rounding X"):
        compared(one, one, None)
    assert all(each.agrees for each in compared(one, one, 0.0))

    data = average(1, configurations=1).assign(names=("flavour", np.array(["ud", "s"])))
    for names, agrees in ((["ud", "s"], True), (["uu", "c"], False)):
        other = data.assign(names=("flavour", np.array(names)))
        found = {each.array: each.agrees for each in compared(data, other, 0.0)}
        assert found == {"correlator": True, "correlator_samples": True, "names": agrees}


def altered(data: xarray.Dataset, change: str) -> xarray.Dataset:
    """The average with what no statistics explain."""
    names = ("correlator", "correlator_samples") if change != "a NaN" else ("correlator",)
    if "NaN" in change:
        there = (data.time != 3) | (data.flavour == "light")
        return data.assign({name: data[name].where(there) for name in names})
    return data.assign({name: data[name] + 2.0 * (data.time == 3) for name in names})


@pytest.mark.parametrize(
    ("change", "said"), [("a NaN", "not finite"), ("NaN everywhere", "not finite"), ("a shift", ", no error")]
)
def test_a_number_without_an_error_is_named_where_only_it_differs(change: str, said: str) -> None:
    data = average(7)
    (found,) = compared(data, altered(data, change), None)
    assert not found.agrees and "time=3" in found.where and found.probability == 1
    text = _text([found], None)
    assert said in text and "equal" not in text
    (both,) = compared(data, altered(average(4, shift=1.5), "a NaN"), None)
    assert both.where == "flavour=light time=0"  # the largest deviation, where these are improbable


def test_late_times_of_a_heavy_state_count() -> None:
    """Their numbers are far below the rounding of the early ones, and their errors are theirs."""
    decay = np.exp(-2.0 * np.arange(24))
    one, two = (average(seed, times=24).map(lambda values: (values / 40 + 1) * decay) for seed in (3, 4))
    one, two = (each.assign_attrs(average(3).attrs) for each in (one, two))
    (found,) = compared(one, two, None)
    assert found.agrees and found.degrees_of_freedom == 48
    late = two.map(lambda values: values.where(two.time < 20, 3 * values)).assign_attrs(two.attrs)
    (found,) = compared(one, late, None)
    assert not found.agrees and found.largest_deviation > 10


def test_many_numbers_take_no_covariance() -> None:
    values = np.random.default_rng(3).normal(size=(4, 200_000))
    data = xarray.Dataset(
        {"vectors": (("config", "site"), values)}, {"config": list("abcd")}, {"node": "v", "stage": "v"}
    )
    (found,) = compared(data, data.assign(vectors=data.vectors[::-1].values * data.vectors), None)
    assert found.degrees_of_freedom == 200_000 and not found.correlated
