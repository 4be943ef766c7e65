"""One resampling of parts on different configurations; the Gamma method on chains with gaps."""

import numpy as np
import pytest

from stages.base.errors import InputError
from stages.lqcd.analysis import common_resampling
from stages.lqcd.analysis.common_resampling import (
    Resampling,
    common_samples,
    configurations,
    gamma_error,
)
from stages.lqcd.analysis.jackknife import bin_means, bootstrap_samples, jackknife_samples

JACKKNIFE = Resampling()
BOOTSTRAP = Resampling(bootstrap=3000, seed=31)


def labels(numbers, stream="a"):
    return [f"{stream}.{number}" for number in numbers]


def correlated(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, 2)) @ np.array([[1.0, 0.7], [0.0, 0.5]])


def test_labels():
    places = configurations(["a.1020", "b_006", "a-30", 7, "l1648f211b580.12"], "light")
    assert places == [("a", 1020), ("b", 6), ("a", 30), ("", 7), ("l1648f211b580", 12)]


def test_same_configurations_give_what_the_plain_functions_give():
    data = correlated(40, 5).reshape(20, 2, 2)
    plain = jackknife_samples(data)
    found, notes = common_samples({"one": (data, range(20)), "two": (data[:, 0], range(20))})
    assert np.allclose(found["one"][1:], plain, rtol=0, atol=1e-15)
    assert np.allclose(found["two"][1:], plain[:, 0], rtol=0, atol=1e-15)
    assert np.allclose(found["one"][0], data.mean(axis=0), rtol=0, atol=1e-15) and not notes
    drawn, _ = common_samples({"one": (data, range(20))}, BOOTSTRAP)
    unscaled = (drawn["one"][1:] - data.mean(axis=0)) / np.sqrt(20 / 19) + data.mean(axis=0)
    assert np.allclose(unscaled, bootstrap_samples(data, 3000, 31), rtol=0, atol=1e-14)


@pytest.mark.parametrize("resampling", [JACKKNIFE, BOOTSTRAP])
def test_overlapping_configurations(resampling):
    """Errors of each part are its own; the covariance is that of the common configurations."""
    data = correlated(60, 6)
    parts = {"one": (data[:40, 0], labels(range(40))), "two": (data[20:, 1], labels(range(20, 60)))}
    samples, _ = common_samples(parts, resampling)
    rough = 0.0 if resampling is JACKKNIFE else 0.04
    for name, (values, _) in parts.items():
        expected = values.std(ddof=1) / np.sqrt(40)
        assert resampling.error(samples[name]) == pytest.approx(expected, rel=max(rough, 1e-12))
    sums, differences = (resampling.error(samples["one"] + s * samples["two"]) for s in (1, -1))
    covariance = (sums**2 - differences**2) / 4
    means = data[:40, 0].mean(), data[20:, 1].mean()
    expected = ((data[20:40, 0] - means[0]) * (data[20:40, 1] - means[1])).sum() / (40 * 39)
    chance = 3 * sums * differences / np.sqrt(3000) if rough else 0.0
    assert covariance == pytest.approx(expected, rel=1e-12, abs=chance)
    apart = {"one": parts["one"], "two": (data[:40, 1], labels(range(40), "b"))}
    alone, _ = common_samples(apart, resampling)
    whole = resampling.error(alone["one"] + alone["two"])
    assert whole == pytest.approx(
        np.hypot(*(resampling.error(alone[k]) for k in apart)), rel=max(rough, 1e-12)
    )


def test_bins_hold_one_stream_and_keep_what_is_left():
    data, width = correlated(21, 7)[:, 0], 3
    names = [*labels(range(9)), *labels(range(9), "b"), *labels(range(3), "c")]
    found, notes = common_samples({"light": (data, names)}, Resampling(bin=width))
    assert np.allclose(found["light"][1:], jackknife_samples(bin_means(data, width)), rtol=0, atol=1e-15)
    assert notes == ("light: " + common_resampling.few_degrees_of_freedom(7),)
    names = [*labels(range(10)), *labels(range(11), "b")]
    found, notes = common_samples({"light": (data, names)}, Resampling(bin=width))
    assert notes[:2] == (
        "stream 'a': the last bin has 1 of 3 configurations",
        "stream 'b': the last bin has 2 of 3 configurations",
    )
    assert len(found["light"]) == 1 + 8 and found["light"][0] == pytest.approx(data.mean(), rel=1e-14)
    left_out = np.delete(data, 9).mean()  # the bin of one configuration
    assert found["light"][4] == pytest.approx(left_out, rel=1e-13)


def test_order_of_configurations_does_not_matter():
    data, order = correlated(12, 8), np.random.default_rng(9).permutation(12)
    one, two = (
        common_samples({"light": (data[k], labels(k))}, Resampling(bin=2))[0]["light"]
        for k in (np.arange(12), order)
    )
    assert np.allclose(one, two, rtol=0, atol=1e-15)


@pytest.mark.parametrize("resampling", [JACKKNIFE, BOOTSTRAP])
def test_bias_of_a_square(resampling):
    """That of mean^2 is the variance of the mean."""
    data = correlated(30, 10)[:, 0]
    found, _ = common_samples({"light": (data, range(30))}, resampling)
    variance = data.var(ddof=1) / 30
    bias = resampling.bias(found["light"] ** 2)
    spread = 4 * abs(data.mean()) * np.sqrt(variance / 3000) if resampling.bootstrap else 0
    assert bias == pytest.approx(variance, rel=0.08 if resampling.bootstrap else 1e-10, abs=spread)


def test_what_is_refused(monkeypatch):
    data = np.ones((3, 4))
    for call, words in (
        (
            lambda: configurations(["a.1", "conf"], "light"),
            "light: the label 'conf' does not end in a number",
        ),
        (lambda: configurations(["a.1", "a1"], "light"), "light: configuration a1 is there twice"),
        (lambda: common_samples({}), "no part to resample"),
        (lambda: common_samples({"light": (data, [1, 2])}), "each of 2 labelled configurations, got"),
        (
            lambda: common_samples({"light": (data * np.nan, [1, 2, 3])}),
            "light: 12 of 12 numbers are not finite",
        ),
        (lambda: common_samples({"light": (data[:1], [1])}), "at least two bins of configurations, got 1"),
        (lambda: common_samples({"light": (data * 1j, [1, 2, 3])}), r"needs real numbers.*got complex128"),
        (lambda: Resampling(seed=-1), "seed must be a whole number of at least 0, got -1"),
        (lambda: Resampling(bootstrap=1), "one bootstrap sample has no spread"),
        (lambda: Resampling(bin=0), "bin must be a whole number of at least 1, got 0"),
        (lambda: Resampling(bootstrap=1.5), "bootstrap must be a whole number of at least 0, got 1.5"),
    ):
        with pytest.raises(InputError, match=words):
            call()

    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(common_resampling, "import_module", missing)
    with pytest.raises(InputError, match="needs pyerrors: pip install pyerrors, or take the jackknife"):
        gamma_error({"light": (data[:, 0], [1, 2, 3])})


def test_a_sample_without_a_part_is_refused():
    parts = {"light": (np.arange(30.0), range(30)), "charm": (np.arange(2.0), [0, 1])}
    with pytest.raises(InputError, match="charm: a sample has none of its 2 bins: take the jackknife"):
        common_samples(parts, Resampling(bootstrap=200, seed=4))


def chains(seed: int, count: int, memory: float = 0.8) -> tuple[np.ndarray, list[str]]:
    """Two streams x' = memory x + noise of unit variance, of which a tenth is missing."""
    rng = np.random.default_rng(seed)
    values, names = [], []
    for stream in "ab":
        x = np.empty(count)
        x[0] = rng.normal() / np.sqrt(1 - memory**2)
        for i, noise in enumerate(rng.normal(size=count - 1)):
            x[i + 1] = memory * x[i] + noise
        kept = np.sort(rng.choice(count, count * 9 // 10, replace=False))
        values.append(x[kept])
        names += labels(kept * 6, stream)
    return np.concatenate(values), names


def test_gamma_method_on_chains_with_gaps():
    """As pyerrors has it, and the truth, tau_int = (1 + f) / (2 (1 - f)), within errors."""
    pyerrors = pytest.importorskip("pyerrors", reason="the Gamma method is pyerrors'")
    data, names = chains(12, 2500)
    order = np.random.default_rng(13).permutation(len(data))
    found = gamma_error({"light": (data[order], [names[k] for k in order])})
    half = len(data) // 2
    numbers = [place[1] for place in configurations(names, "light")]
    own = pyerrors.Obs([data[:half], data[half:]], ["e|a", "e|b"], idl=[numbers[:half], numbers[half:]])
    own.gamma_method(S=2.0)
    assert found[:3] == pytest.approx((own.value, own.dvalue, own.ddvalue), rel=1e-10)
    assert found.tau_int == pytest.approx(own.e_tauint["e"], rel=1e-10)
    assert abs(found.tau_int - 4.5) < 3 * found.tau_int_error
    assert found.error == pytest.approx(np.sqrt(2 * 4.5 / 0.36 / len(data)), rel=0.25)
    bins = JACKKNIFE.error(common_samples({"light": (data, names)}, Resampling(bin=50))[0]["light"])
    assert found.error == pytest.approx(bins, rel=0.25)


@pytest.mark.parametrize("data", [np.ones(12), np.arange(12.0), np.zeros(12)])
def test_gamma_method_of_short_chains(data):
    pytest.importorskip("pyerrors", reason="the Gamma method is pyerrors'")
    found = gamma_error({"light": (data, range(12))})
    assert found.value == pytest.approx(data.mean()) and found.error >= 0
    with pytest.raises(
        InputError, match="light: needs at least 5 configurations of each stream, got 4 in 'b"
    ):
        gamma_error({"light": (data, [*range(8), "b.1", "b.2", "b.3", "b.4"])})


def test_gamma_method_of_parts_on_different_configurations():
    pytest.importorskip("pyerrors", reason="the Gamma method is pyerrors'")
    data, names = chains(14, 600, memory=0.0)
    parts = {"one": (data[:700], names[:700]), "two": (-data[300:], names[300:])}
    found = gamma_error(parts)
    assert found.value == pytest.approx(data[:700].mean() - data[300:].mean(), rel=1e-12)
    samples, _ = common_samples(parts)
    assert found.error == pytest.approx(JACKKNIFE.error(samples["one"] + samples["two"]), rel=0.2)


@pytest.mark.parametrize(
    ("pattern", "labels", "found"),
    [
        (None, ["a.1", "a.2"], ["a.1", "a.2"]),
        ("l48{stream}.{number}.ildg", ["l48a.0012.ildg", "l48b.6.ildg"], ["a.12", "b.6"]),
        ("*{number}", ["x-10", "x-0"], [".10", ".0"]),
        ("{stream}_{number}*", ["a_b_3.lime", "a_b_12.lime"], ["a_b.3", "a_b.12"]),
        ("l48{stream}.{number}", ["l48a.12", "m.13"], r"does not match the label 'm\.13'"),
        ("*.{number}", ["a.1", "b.1"], r"makes 'a\.1' and 'b\.1' alike: '\.1'"),
        ("{stream}", ["a.1"], r"is no pattern of labels: it has \{number\} once"),
    ],
)
def test_patterns_of_labels(pattern, labels, found):
    if isinstance(found, list):
        assert [f"{stream}.{number}" for stream, number in configurations(labels, "", pattern)] == found
    else:
        with pytest.raises(InputError, match=found):
            configurations(labels, "", pattern)
