"""a_mu of several parts with its budget, against closed forms and finite differences; the page's example."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from synthetic_hvp import periodic, synthetic

from stages.lqcd.analysis.a_mu import CHARGES, VectorCorrelator, a_mu
from stages.lqcd.analysis.blinding import Blinding
from stages.lqcd.analysis.bounding import Tail
from stages.lqcd.analysis.common_resampling import Resampling
from stages.lqcd.analysis.hvp_budget import HvpBudget
from stages.lqcd.analysis.hvp_sum import HvpSum
from stages.lqcd.analysis.milc_ensembles import NAMES, milc_ensemble
from stages.lqcd.analysis.scale import Measured, Scale
from support.refusals import refuses

PAGE = Path(__file__).parents[3] / "docs" / "a_mu.md"
CASE, LIGHT, SMOOTH = synthetic()
EXTENT, VOLUME, COUNT = CASE["N"], 48**3, 40
STRANGE = periodic(EXTENT, [(0.0012, 0.46), (0.004, 0.8)])
DISCONNECTED = periodic(EXTENT, [(-0.0001, 0.35), (0.00008, 0.36)])
TOTAL = HvpSum(Scale(0.09, 0.0004))
TAIL = Tail(0.27, strange_energy=0.46, slice=28, disconnected_slice=24)
Z_V = Measured(0.9, 0.004, "Z_V one-link")
EXACT = {"light": LIGHT, "strange": STRANGE, "disconnected": DISCONNECTED}


def part(name: str, correlator, numbers=range(COUNT), z_v=Z_V, noise=2e-7, common=0.8) -> VectorCorrelator:
    """A part of G(t) as it would be measured: noise of each configuration, of which parts share some."""
    n = np.minimum(np.arange(EXTENT), EXTENT - np.arange(EXTENT))
    rows = []
    for number in numbers:
        shared = np.random.default_rng(number).normal()
        own = np.random.default_rng([number, sum(name.encode())]).normal(size=EXTENT)
        rows.append(correlator + noise * (common * shared + own) * np.exp(-0.062 * n))
    factor = VOLUME / CHARGES[name] / (z_v.value**2 if z_v else 1)
    labels = [f"a.{6 * number}" for number in numbers]
    return VectorCorrelator(
        name, np.array(rows) * factor, labels, VOLUME, "one_link" if z_v else "conserved", z_v
    )


def parts(z_v=Z_V) -> list[VectorCorrelator]:
    return [
        part("light", LIGHT, z_v=z_v),
        part("strange", STRANGE, range(10, COUNT), z_v=None, noise=2e-8),
        part("disconnected", DISCONNECTED, range(25), z_v=z_v, noise=1e-7),
    ]


def row(budget: HvpBudget, name: str) -> Measured:
    (found,) = (each for each in (*budget.parts, *budget.sources, *budget.corrections) if each.name == name)
    return found


def test_parts_without_noise_have_their_factors():
    quiet = [part(name, correlator, noise=0.0) for name, correlator in EXACT.items()]
    budget = a_mu(quiet, TOTAL)
    for name, correlator in EXACT.items():
        assert row(budget, name).value == pytest.approx(TOTAL.value(correlator), rel=1e-12)
        assert row(budget, name).error < 1e-10
    assert budget.value == pytest.approx(sum(TOTAL.value(g) for g in EXACT.values()), rel=1e-12)


def test_budget_against_the_truth():
    budget = a_mu(parts(), TOTAL, tail=TAIL)
    truth = TOTAL.value(SMOOTH + STRANGE + DISCONNECTED)
    assert abs(budget.value - truth) < 2 * budget.error
    names = [each.name for each in budget.sources]
    assert names == ["statistical", "scale", "Z_V one-link", "tail, light", "tail, disconnected"]
    assert budget.error == pytest.approx(np.sqrt(sum(each.error**2 for each in budget.sources)))
    apart = np.sqrt(sum(each.error**2 for each in budget.parts))
    assert row(budget, "statistical").error > 1.02 * apart  # the parts have noise in common
    plain = a_mu(parts(), TOTAL)
    assert row(budget, "light").error < 0.8 * row(plain, "light").error
    assert len(budget.notes) == 2 and "light: bounds beyond slice 28, 2.520 fm" in budget.notes[0]


def test_errors_of_inputs_are_derivatives():
    """Of the whole number, by finite differences in a and in Z_V, which two parts share."""
    for window in ("W", "total"):
        total = replace(TOTAL, window=window)
        budget = a_mu(parts(), total, tail=TAIL)
        h = 1e-5
        up, down = (
            a_mu(parts(), replace(total, scale=Scale(0.09 * (1 + s), 0.0)), tail=TAIL).value for s in (h, -h)
        )
        slope = (up - down) / (2 * h * 0.09)
        assert row(budget, "scale").error == pytest.approx(abs(slope) * 0.0004, rel=1e-6)
        measured = parts()
        up, down = (
            a_mu(
                [replace(p, z_v=p.z_v and replace(Z_V, value=0.9 * (1 + s))) for p in measured],
                total,
                tail=TAIL,
            )
            for s in (h, -h)
        )
        slope = (up.value - down.value) / (2 * h * 0.9)
        assert row(budget, "Z_V one-link").error == pytest.approx(abs(slope) * 0.004, rel=1e-6)


@pytest.mark.parametrize("resampling", [Resampling(), Resampling(bin=3), Resampling(bootstrap=400, seed=2)])
def test_the_cut_is_where_bounds_are_as_good_as_the_statistics(resampling):
    tail = replace(TAIL, slice=None, disconnected_slice=None)
    budget = a_mu(parts(), TOTAL, tail=tail, resampling=resampling)
    for name in ("light", "disconnected"):
        assert 0 < row(budget, f"tail, {name}").error <= row(budget, name).error
    cut = int(re.search(r"light: bounds beyond slice (\d+)", "\n".join(budget.notes))[1])
    assert 20 < cut < 34
    earlier = a_mu(parts(), TOTAL, tail=replace(tail, slice=cut - 1), resampling=resampling)
    assert row(earlier, "tail, light").error > row(earlier, "light").error


def test_windows_of_a_budget_add_up():
    values = [a_mu(parts(), replace(TOTAL, window=w), tail=TAIL).value for w in ("SD", "W", "LD", "total")]
    assert sum(values[:3]) == pytest.approx(values[3], rel=1e-13)


def test_nothing_but_zeros():
    quiet = replace(part("light", LIGHT), data=np.zeros((3, EXTENT)), labels=[1, 2, 3])
    budget = a_mu([quiet], TOTAL, tail=TAIL)
    assert budget.value == budget.error == 0 and "inf %" in str(budget)


def test_strong_isospin_is_one_row():
    """It vanishes for equal masses; its error is that of the sum, in which common noise cancels."""
    pieces = [part(name, LIGHT * CHARGES[name]) for name in ("up", "down", "minus_light")]
    same = [replace(each, data=pieces[0].data) for each in pieces]
    budget = a_mu(same, TOTAL)
    assert [each.name for each in budget.parts] == ["strong isospin"]
    assert abs(budget.value) < 1e-9 and row(budget, "statistical").error < 1e-9
    light = part("light", LIGHT)
    whole = a_mu([light, *same[:1], *(replace(each, data=1.01 * light.data) for each in same[1:2]), replace(
        same[2], data=light.data)], TOTAL)  # fmt: skip
    assert [each.name for each in whole.parts] == ["light", "strong isospin"]
    apart = [a_mu([replace(light, part=name, data=data)], TOTAL) for name, data in (
        ("up", pieces[0].data), ("down", 1.01 * light.data), ("minus_light", light.data))]  # fmt: skip
    found = row(whole, "strong isospin")
    assert found.value == pytest.approx(sum(each.parts[0].value for each in apart), rel=1e-9)
    assert found.error < row(whole, "light").error


def test_corrections_are_rows():
    corrections = [Measured(15.0, 4.0, "finite volume"), Measured(-3.0, 2.0, "taste breaking")]
    plain, budget = a_mu(parts(), TOTAL), a_mu(parts(), TOTAL, corrections=corrections)
    assert budget.value == pytest.approx(plain.value + 12)
    assert budget.error == pytest.approx(np.sqrt(plain.error**2 + 20))
    assert budget == plain.corrected(*corrections)


def test_a_budget_prints_as_a_table():
    budget = a_mu(parts(), TOTAL, corrections=[Measured(15.0, 4.0, "finite volume")])
    head, columns, *lines = str(budget).splitlines()
    assert head == "a_mu [total] in 1e-10" and columns.split() == ["value", "error", "of", "total"]
    assert [line[:28].strip() for line in lines] == [
        *EXACT, "finite volume", "statistical", "scale", "Z_V one-link", "total"
    ]  # fmt: skip
    value, error, share = lines[-1][28:].replace("%", "").split()
    assert float(value) == pytest.approx(budget.value, abs=1e-4)
    assert float(error) == pytest.approx(budget.error, abs=1e-4)
    assert float(share) == pytest.approx(100 * budget.error / budget.value, abs=1e-3)


def test_a_blinded_budget():
    blinding = Blinding()
    plain, blinded = (a_mu(parts(), TOTAL, tail=TAIL, blinding=b) for b in (None, blinding))
    factors = {
        round(b / p, 10)
        for one, other in ((blinded.parts, plain.parts), (blinded.sources, plain.sources))
        for mine, open_ in zip(one, other, strict=True)
        for b, p in ((mine.value, open_.value), (mine.error, open_.error))
        if p
    }
    assert len(factors) == 1 and factors != {1.0}
    assert (
        blinded.notes == plain.notes and blinding.digest in str(blinded) and blinding.key not in str(blinded)
    )
    opened = blinded.opened(blinding.key)
    assert opened.value == pytest.approx(plain.value, rel=1e-14) and opened.digest is None
    for call, words in (
        (lambda: blinded.corrected(Measured(1, 1, "taste")), "taste cannot be added to a blinded budget"),
        (
            lambda: a_mu(parts(), TOTAL, blinding=blinding, corrections=[Measured(1, 1, "taste")]),
            "taste cannot be added",
        ),
        (lambda: plain.opened(blinding.key), "is not blinded"),
        (lambda: blinded.opened(Blinding().key), "the key is not the one"),
    ):
        refuses(words, call)


def test_what_is_refused():
    light, strange, disconnected = parts()
    data, labels = light.data, light.labels
    for call, words in (
        (
            lambda: VectorCorrelator("ligt", data, labels, 8, "local", Z_V),
            "unknown part 'ligt'.*did you mean 'light'",
        ),
        (lambda: VectorCorrelator("light", data, labels, 8, "locl", Z_V), "unknown current 'locl'"),
        (lambda: VectorCorrelator("light", data, labels, 8, "local"), r"local current needs z_v=Measured\("),
        (lambda: VectorCorrelator("light", data, labels, 8, "conserved", Z_V), "has 1, leave z_v out"),
        (lambda: VectorCorrelator("light", data[0], labels, 8, "conserved"), r"\[config, time\].*got \[96\]"),
        (lambda: VectorCorrelator("light", data, labels, 0, "conserved"), r"got \[40, 96\] and 0"),
        (lambda: VectorCorrelator("light", data, labels, 8, "local", 0.9), r"needs z_v=Measured.*got 0\.9"),
        (lambda: replace(light, z_v=Measured(0.0, 0.1, "Z")), r"needs z_v=Measured\("),
        (lambda: VectorCorrelator("light", data, labels, "8", "conserved"), "volume of light must be .* '8'"),
        (lambda: a_mu([light], TOTAL, corrections=[3.0]), r"a correction has an error.*got 3\.0"),
        (lambda: replace(TOTAL, window=["W"]), r"unknown window \['W'\]"),
        (lambda: a_mu([light, light], TOTAL), "there twice: light, light"),
        (lambda: a_mu([], TOTAL), "got no part"),
        (lambda: a_mu([light, replace(strange, volume=27)], TOTAL), "the same volume, got"),
        (lambda: a_mu([light], 0.12), "a_mu takes a HvpSum, got 0.12"),
        (lambda: a_mu([light], TOTAL, tail=0.29), "a_mu takes a Tail, got 0.29"),
        (lambda: a_mu([light], TOTAL, resampling=2), "a_mu takes a Resampling, got 2"),
        (lambda: a_mu([light], TOTAL, blinding="key"), "a_mu takes a Blinding, got 'key'"),
        (lambda: a_mu([light, replace(strange, data=strange.data[:, :90])], TOTAL), r"got \[90, 96\]"),
        (lambda: a_mu([light, part("up", LIGHT)], TOTAL), "count quarks twice: add minus_light"),
        (lambda: a_mu([disconnected, light], TOTAL, tail=TAIL), r"needs the parts \['strange'\]"),
        (lambda: a_mu([light], TOTAL, tail=replace(TAIL, slice=60)), "from steps = 4 to 47, got 60"),
        (lambda: a_mu([light], replace(TOTAL, last=20), tail=TAIL), "from steps = 4 to 20, got 28"),
        (lambda: replace(TOTAL, window=None), "unknown window None"),
        (lambda: a_mu([light, strange], replace(TOTAL, last=60), tail=TAIL), "only a bounded tail"),
        (lambda: replace(TOTAL, window="w"), "unknown window 'w'"),
        (
            lambda: a_mu([replace(light, labels=labels[1:])], TOTAL),
            "light: needs real numbers for each of 39 labelled",
        ),
    ):
        refuses(words, call)


def test_the_example_of_the_page(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(77)
    for name, correlator in (("light", 9 / 5 * LIGHT[16:80]), ("strange", 9 * STRANGE[16:80])):
        shifted = periodic(64, [(0.02, 0.6)]) + 0 * correlator
        np.save(f"{name}.npy", shifted * 48**3 * (1 + 0.01 * rng.normal(size=(20, 1))))
    example = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.M | re.S)[0]
    assert len(example.split("\n\n")[1].splitlines()) <= 10
    found: dict = {}
    exec(example, found)
    printed = capsys.readouterr().out
    assert printed.startswith("a_mu [total] in 1e-10") and "finite volume" in printed
    assert str(found["budget"].corrected(Measured(15.0, 4.0, "finite volume"))) + "\n" == printed


def test_public_ensembles():
    found = milc_ensemble("l4864f211b600m00184m0507m628a")
    assert (found.name, found.extents, found.beta) == ("l4864f211b600m00184m0507m628", (48, 48, 48, 64), 6.0)
    assert dict(found.masses) == {"light": 0.00184, "strange": 0.0507, "charm": 0.628}
    assert found.scale == Scale(0.12224, 0.00029) and "1712.09262" in found.source
    assert milc_ensemble("l144288f211b700m000569m01555m1827").extents == (144, 144, 144, 288)
    assert milc_ensemble("l1648f211b580m013m065m838").charm_epsilon == -0.3582
    for name in NAMES.split():
        ensemble = milc_ensemble(name)
        x, y, z, t = ensemble.extents
        assert name.startswith(f"l{x}{t}f211b{100 * ensemble.beta:.0f}m") and x == y == z
        light, strange, charm = ensemble.masses.values()
        assert 0 < light < strange < charm / 10 < 0.1
        assert 0.03 < ensemble.scale.a_fm < 0.16 and ensemble.scale.error < 0.011 * ensemble.scale.a_fm
    own = replace(found, name="ours", beta=6.1)
    assert milc_ensemble("ours", {"ours": own}) is own
    refuses("no MILC ensemble is named 'l4864'", milc_ensemble, "l4864")
