"""The workflow `g2_hvp`: keys, results against the library, blinding, a target; from links to a_mu."""

from __future__ import annotations

import json
import re
import shutil
from itertools import chain
from pathlib import Path
from uuid import uuid4

import numpy as np
import pytest
from tiny_hvp import HVP, without_solves
from tiny_project import CommandLine, edit, missing, refused, run_to_its_end

from pipeline import Store, open_result
from stages.lqcd.analysis.a_mu import VectorCorrelator, a_mu
from stages.lqcd.analysis.blinding import Blinding
from stages.lqcd.analysis.bounding import Tail
from stages.lqcd.analysis.hvp_sum import HvpSum
from stages.lqcd.analysis.scale import Measured, Scale
from workflows.g2_hvp.target import Kind, allotted

BLIND = ("analysis:\n", "analysis:\n  blind: {key: hvp.key}\n")
STATED = ("one_link: {at: 3}", "one_link: {value: 0.9, error: 0.01}")


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory, cluster: str) -> Path:
    """A folder in which `hvp.yaml` has run to its end, and `blind.yaml` with a key. Only to be copied."""
    folder = tmp_path_factory.mktemp("hvp")
    (folder / "hvp.yaml").write_text(HVP)
    (folder / "blind.yaml").write_text(
        HVP.replace("store: store", "store: blind").replace("t: rep", "t: blind-rep")
    )
    edit(folder / "blind.yaml", BLIND)
    Blinding(key="5eed" * 8).write(folder / "hvp.key")  # whose factor is 1.088: digits differ
    with pytest.MonkeyPatch.context() as patch:
        without_solves(patch)
        run_to_its_end(folder, cluster, "hvp.yaml")
        averages = shutil.ignore_patterns("hvp_*", ".runs", ".workflows", ".forecasts")
        shutil.copytree(folder / "store", folder / "blind", ignore=averages)
        run_to_its_end(folder, cluster, "blind.yaml")
    return folder


@pytest.fixture
def hvp(ran: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the finished runs; the open one's file."""
    without_solves(monkeypatch)
    shutil.copytree(ran, tmp_path, dirs_exist_ok=True)
    return tmp_path / "hvp.yaml"


def test_the_budget_is_the_librarys(hvp: Path, quarkline: CommandLine, cluster: str) -> None:
    """With a stated Z_V; with one from a ratio, that is in the samples."""
    found = open_result(hvp.parent / "store", "a_mu").load()
    light = open_result(hvp.parent / "store", "correlator_light").load()
    assert found.z_v.sel(term="light") == pytest.approx(0.9, abs=0.01)
    assert found.z_v.sel(term="light") == found.z_v_ratio.sel(term="light")[3]
    edit(hvp, STATED)
    assert missing(quarkline, hvp) == {"a_mu": 1}
    assert quarkline("run", hvp, "--cluster", cluster).code == 0
    found = open_result(hvp.parent / "store", "a_mu").load()
    z_v, labels = Measured(0.9, 0.01, "Z_V one_link"), [str(each) for each in light.config.values]
    rows = {
        "light": ("correlator_light", 0),
        "strange": ("correlator_strange", 0),
        "disconnected": ("correlator", 2),
    }
    parts = []
    for name, (node, row) in rows.items():
        data = open_result(hvp.parent / "store", node).load().correlator.values[:, row]
        parts.append(VectorCorrelator(name, data, labels, 64, "one_link", z_v))
    tail = Tail(0.6, 0.8, 2, 2, steps=1)
    for window in ("total", "SD"):
        budget = a_mu(parts, HvpSum(Scale(0.2, 0.001), window), tail=tail)
        if window == "total":
            budget = budget.corrected(Measured(15.0, 4.0, "finite volume"))
        each = found.sel(window=window)
        for row in (*budget.parts, *budget.corrections, *budget.sources):
            assert each.budget_error.sel(row=row.name) == pytest.approx(row.error, rel=1e-12)
            assert row.value == 0 or each.budget.sel(row=row.name) == pytest.approx(row.value, rel=1e-12)
        assert each.budget.sel(row="total") == pytest.approx(budget.value, rel=1e-12)
        assert f"{budget.value:.4f}" in (hvp.parent / "report" / "a_mu.txt").read_text()


def test_what_repeats_what(hvp: Path, quarkline: CommandLine) -> None:
    assert missing(quarkline, hvp) == {}
    edit(
        hvp,
        ("a_fm: 0.2", "a_fm: 0.21"),
        ("[total, SD]", "[total, W, near]\n  own_windows: {near: {stop: 0.5}}"),
    )
    assert missing(quarkline, hvp) == {"a_mu": 1}
    edit(hvp, ("analysis:\n", "analysis:\n  jackknife_bin: 2\n"))
    assert missing(quarkline, hvp) == {"average": 1, "a_mu": 1}
    edit(hvp, ("configurations: 4", "configurations: 5"))
    assert missing(quarkline, hvp) == {
        "configuration": 1, "observables": 1, "walls_light": 1, "walls_strange": 1, "wall_noise": 1,
        "correlator_light": 1, "correlator_strange": 1, "correlator": 1, "average": 1, "a_mu": 1,
    }  # fmt: skip


def text_of(folder: Path) -> str:
    return "".join((folder / "report" / file).read_text() for file in ("tables.txt", "index.html"))


def test_loops_on_some_configurations(hvp: Path, quarkline: CommandLine, cluster: str) -> None:
    edit(hvp, ("\ndisconnected:\n", "\ndisconnected:\n  only: heatbath-[02]\n"))
    assert missing(quarkline, hvp) == {"average": 1, "a_mu": 1}
    assert quarkline("run", hvp, "--cluster", cluster).code == 0
    average = open_result(hvp.parent / "store", "average").load()
    loops = open_result(hvp.parent / "store", "correlator").load().correlator[:, 2]
    np.testing.assert_allclose(average.correlator.sel(part="disconnected"), loops.mean("config"), rtol=1e-13)
    bootstrap = ("--set", "analysis.bootstrap={samples: 500, seed: 1}")
    refused(
        quarkline("plan", hvp, *bootstrap), "disconnected: a sample has none of its 2 bins: take the jack"
    )
    assert "4 of light one_link" in (text := text_of(hvp.parent)) and "2 of disconnected" in text


@pytest.mark.slow
def test_walls_on_some_configurations_in_bins_of_which_the_last_is_not_full(hvp, quarkline, cluster):
    only = ("\nconnected:\n", "\nconnected:\n  only: heatbath-[013]\n")
    edit(hvp, only, ("analysis:\n", "analysis:\n  jackknife_bin: 3\n"), ("walls: 2", "walls: 4"))
    assert quarkline("run", hvp, "--cluster", cluster).code == 0
    average = open_result(hvp.parent / "store", "average").load()
    light = open_result(hvp.parent / "store", "correlator_light").load().correlator[:, 0].values
    mean, samples = average.correlator.sel(part="light one_link"), average.correlator_samples[:, 0]
    np.testing.assert_allclose(mean, light.mean(axis=0), rtol=1e-13)
    np.testing.assert_allclose(samples, [light[2], light[:2].mean(axis=0)], rtol=1e-12)
    loops = open_result(hvp.parent / "store", "correlator").load().correlator[:, 2].values
    np.testing.assert_allclose(average.correlator_samples[1, -1], loops[:3].mean(axis=0), rtol=1e-12)
    text = text_of(hvp.parent)
    assert "the last bin has 1 of 3 configurations" in text and "1 degree of freedom" in text
    assert "3 of light one_link" in text and "4 of disconnected" in text
    assert "Estimators of C(t), light, one_link" in text  # of four walls there are errors of errors


def test_tails_of_the_light_part_alone(hvp: Path, quarkline: CommandLine, cluster: str) -> None:
    edit(hvp, ("strange_energy: 0.8, slice: 2, disconnected_slice: 2", "slice: 2"))
    assert quarkline("run", hvp, "--cluster", cluster).code == 0
    found = open_result(hvp.parent / "store", "a_mu").load()
    assert [row for row in found.row.values if row.startswith("tail")] == ["tail, light"]
    disconnected = found.sel(part="disconnected").partial_sum[:, -1]
    np.testing.assert_allclose(found.budget.sel(row="disconnected"), disconnected, rtol=1e-12)


def test_what_is_refused_of_two_sections(hvp: Path, quarkline: CommandLine) -> None:
    target = ("--set", "target={a_mu: {relative: 0.5}, most_walls: 2}", "--set", "connected.noise.walls=4")
    refused(quarkline("plan", hvp, *target), "2 is less than the 4 walls of `noise`")
    sea = "{extents: [4, 4, 4, 8], beta: 6.0, masses: {light: 0.1, strange: 0.29}, a_fm: 0.2, error: 0.001}"
    (hvp.parent / "ensembles.yaml").write_text(f"tiny: {sea}")
    edit(hvp, ("ensemble:\n", "ensemble:\n  name: tiny\n  table: ensembles.yaml\n"))
    warned = quarkline("plan", hvp)
    assert "0.2 is not near 0.1, that of tiny: is it meant?" in warned.out and "0.3 is" not in warned.out


def numbers_in(folder: Path, opens: tuple[str, ...]) -> np.ndarray:
    """All numbers with all their digits in a store without the stages of open nodes: arrays and records."""
    store, found = Store(folder), []
    for stage in store.stages():
        if stage in opens:
            continue
        for key in store.keys(stage):
            arrays = store.load(stage, key)
            found += [
                np.asarray(array, float).ravel() for array in arrays.values() if array.dtype.kind == "f"
            ]
            text = json.dumps(
                {k: v for k, v in store.record(stage, key).items() if k in ("statistics", "parameters")}
            )
            found.append(np.array([float(n) for n in re.findall(r"-?\d+\.\d+(?:e[-+]\d+)?", text)]))
    values = np.abs(np.concatenate(found))
    return np.unique(values[np.isfinite(values) & (values > 0)])


OPENS = (
    "drawn_correlator", "drawn_walls", "connected_correlator", "wall_noise",
    "heatbath_configuration", "gauge_observables",
)  # fmt: skip


def test_a_blinded_run_does_not_give_its_factor_away(ran: Path, tmp_path: Path) -> None:
    """Of store, pages, tables, texts and logs without open nodes: no ratio of two is the factor."""
    key = (ran / "hvp.key").read_text().split(":")[0]
    (average,) = Store(ran / "blind").keys("hvp_average")
    digest = Store(ran / "blind").record("hvp_average", average)["parameters"]["blinded"]
    factor = Blinding.of_file(ran / "hvp.key", digest).factor
    values = numbers_in(ran / "blind", OPENS)
    plain_values = numbers_in(ran / "store", OPENS)
    assert len(values) > 150 and abs(factor - 1) > 1e-4
    logs = np.sort(np.log(values))
    places = np.searchsorted(logs, logs + abs(np.log(factor)))
    for beside in (places, places - 1):
        ratios = logs[np.clip(beside, 0, len(logs) - 1)] - logs
        assert np.abs(ratios - abs(np.log(factor))).min() > 1e-11, "two numbers have it for their ratio"
    linear = plain_values[np.isin(np.round(np.log(plain_values * factor), 10), np.round(np.log(values), 10))]
    assert len(linear) > 100  # the blinded store has the open one's numbers times the factor
    assert not np.isin(np.round(np.log(linear), 9), np.round(np.log(values), 9)).any()
    texts = [p for p in chain(ran.glob("blind/.runs/**/*"), ran.glob("blind-report/*")) if p.is_file()]
    everything = b"".join(p.read_bytes() for p in texts if p.suffix != ".png")
    assert key.encode() not in everything and len(texts) > 5
    table = (ran / "report" / "a_mu.txt").read_text()
    opened = set(
        re.findall(r"\d+\.\d{4}", "".join(x for x in table.splitlines(True) if x[:5] in ("light", "stran")))
    )
    shown = set(re.findall(r"\d+\.\d{4}", (ran / "blind-report" / "a_mu.txt").read_text()))
    assert len(opened) > 3 and not opened & shown


def test_opening(hvp: Path, quarkline: CommandLine) -> None:
    opened = quarkline("open", "blind.yaml", "--key", "hvp.key")
    table = (hvp.parent / "report" / "a_mu.txt").read_text()
    without_head = "".join(line for line in table.splitlines(True) if not line.startswith("# "))
    assert opened.code == 0
    assert [
        line for line in opened.out.splitlines() if not line.startswith("# ")
    ] == without_head.splitlines()
    budgets = json.loads(quarkline("open", "blind.yaml", "--key", "hvp.key", "--json").out)
    assert all(f"{each['value']:.4f}" in table for each in budgets["totals"]) and budgets["budgets"]
    other = quarkline("open", "blind.yaml", "--key", "hvp.key", "--set", "analysis.windows=[SD, total]")
    assert other.out.startswith("a_mu [SD]") and "a_mu [total]" in other.out and not other.err
    assert quarkline("open", "--new-key", "other.key").code == 0
    refused(quarkline("open", "--new-key", "other.key"), "cannot write a key into other.key: File exists")
    refused(quarkline("open", "blind.yaml", "--key", "other.key"), "is not the one of the blinding")
    refused(quarkline("open", "blind.yaml", "--key", "hvp.yaml"), "hvp.yaml holds no key")
    refused(quarkline("open", "hvp.yaml", "--key", "hvp.key"), "are not blinded")
    refused(quarkline("open", "blind.yaml"), "--key FILE")
    refused(
        quarkline("plan", "blind.yaml", "--set", "analysis.blind.key=other.key"),
        "averages of the same correlators that are of another blinding (hvp_average",
    )
    refused(quarkline("plan", "blind.yaml", "--store", "store"), "that are open (hvp_average")
    refused(
        quarkline("plan", "hvp.yaml", "--store", "blind"), "that are blinded (hvp_average", "`quarkline open`"
    )
    more, noise = ("ensemble.heatbath.configurations=5",), ("connected.noise.walls=4", "disconnected=null")
    for name, place, changes in (("hvp", "blind", more), ("hvp", "blind", noise), ("blind", "store", noise)):
        options = [word for change in changes for word in ("--set", change)]  # noise: no chunk is the same
        kind = "that are blinded (hvp_average" if name == "hvp" else "that are open (hvp_average"
        refused(quarkline("plan", f"{name}.yaml", "--store", place, *options), kind)
    remote = f"memory://{uuid4().hex}/store"
    assert quarkline("push", "blind", remote).code == 0
    for command in (
        ("merge", "store", "blind", "--into", "new"),
        ("merge", "blind", "--into", "store"),
        ("pull", "blind", "store", "--results"),
        ("push", "store", remote),
        ("pull", remote, "store"),
        ("merge", "blind", "store", "--into", "new", "--stage", "a_mu"),
    ):
        refused(quarkline(*command), "bring them into another store, or remove ", "first")
    some = [f"--stage={name}" for name in ("correlator", "average", "a_mu")]
    assert quarkline("merge", "blind", "--into", "both", *some).code == 0
    assert quarkline("merge", "store", "--into", "both", "--stage", "configuration").code == 0
    refused(quarkline("merge", "store", "--into", "both", "--stage", "a_mu"), "hvp_contribution first")
    assert quarkline("merge", "blind", "--into", "alone", "--stage", "a_mu").code == 0
    (hvp.parent / "c.yaml").write_text(CONNECTED.replace("ENSEMBLE", ENSEMBLE))
    refused(quarkline("plan", "c.yaml", "--store", "alone"), "alone/hvp_contribution first")
    refused(quarkline("merge", "blind", "--into", "store", "--stage", "a_mu"), "blind/hvp_contribution first")
    shutil.rmtree(hvp.parent / "store" / "hvp_average")
    refused(quarkline("plan", "blind.yaml", "--store", "store"), "hvp_contribution first")
    shutil.rmtree(hvp.parent / "blind" / "hvp_average")
    refused(quarkline("plan", "hvp.yaml", "--store", "blind"), "hvp_contribution first")
    shutil.rmtree(hvp.parent / "store" / "hvp_contribution")
    assert quarkline("plan", "blind.yaml", "--store", "store").code == 0
    (hvp.parent / "hvp.key").unlink()
    refused(
        quarkline("run", "blind.yaml"), "there is no key of a blinding in hvp.key", "--new-key hvp.key` makes"
    )


def test_exports_say_their_factors(hvp: Path, quarkline: CommandLine) -> None:
    assert quarkline("export", hvp, "--to", "csv", "-o", "out").code == 0
    assert {p.name for p in (hvp.parent / "out").iterdir()} >= {
        "a_mu.csv",
        "average.csv",
        "correlator_light.csv",
    }
    head = (hvp.parent / "out" / "a_mu.csv").read_text().splitlines()[:40]
    assert any(line.startswith("# included:") and "Z_V^2" in line for line in head)
    assert any("in 1e-10" in line for line in head)
    assert quarkline("export", "blind.yaml", "--to", "csv", "-o", "blinded").code == 0
    assert {p.name for p in (hvp.parent / "blinded").iterdir()} == {
        "a_mu.csv",
        "average.csv",
        "observables.csv",
    }
    assert "# blinded:" in (hvp.parent / "blinded" / "average.csv").read_text()


def test_a_target_beside_the_inputs(hvp: Path, quarkline: CommandLine) -> None:
    edit(hvp, ("store: store", "target: {a_mu: {window: SD, relative: 0.5}}\nstore: store"))
    assert "target met" in quarkline("plan", hvp).out
    edit(hvp, ("0.5", "0.003"))
    refused(quarkline("plan", hvp), "0.003 is below what the scale alone leaves, 0.0064")
    edit(hvp, ("a_fm: 0.2, error: 0.001", "a_fm: 0.2, error: 0.0001"))
    assert missing(quarkline, hvp) == {"a_mu": 1}


def test_a_target_asks_for_walls(hvp: Path, quarkline: CommandLine, cluster: str) -> None:
    """Where noise is a good part of the error."""
    stated = ("one_link: {at: 3}", "one_link: {value: 0.9, error: 1.0e-6}")
    edit(hvp, stated, ("error: 0.001", "error: 1.0e-6"), ("disconnected_slice: 2", "disconnected_slice: 3"))
    tail = re.search(r"  tail: .*\n", hvp.read_text())[0]
    edit(
        hvp,
        (tail, ""),
        ("windows: [total, SD]", "windows: [SD]"),
        ("value: 15.0, error: 4.0", "value: 0.0, error: 0.0, window: SD"),
    )
    assert quarkline("run", hvp, "--cluster", cluster).code == 0
    found = open_result(hvp.parent / "store", "a_mu").load().isel(window=0)
    error = float(found.budget_error.sel(row="total") / found.budget.sel(row="total"))
    ask = "target={{a_mu: {{window: SD, relative: {:.8f}}}}}"
    for factor, words in ((1.01, "target met"), (0.97, "next 4 walls, 4 noise vectors per")):
        assert words in quarkline("plan", hvp, "--set", ask.format(factor * error)).out


@pytest.mark.slow
def test_a_target_takes_the_cheapest_number_of_eigenvectors(
    hvp: Path, quarkline: CommandLine, cluster: str
) -> None:
    """By pilots on one configuration; more configurations do not measure them again."""
    target = "target: {a_mu: {window: SD, relative: 0.5}, eigenvectors: [0]}"
    edit(hvp, ("store: store", f"deflation: {{vectors: 4, block: 2}}\n{target}\nstore: store"))
    assert missing(quarkline, hvp)["deflation_space"] == 1
    ran = quarkline("run", hvp, "--cluster", cluster)
    assert ran.code == 0
    tried = open_result(hvp.parent / "store", "a_mu").attrs["eigenvectors_tried"]
    seconds = {text.split(":")[0]: float(text.split()[-6]) for text in tried.split("; ")}
    assert [*seconds] == ["4", "0"] and "; 0: 0 s once, " in tried
    cheapest = min(seconds, key=lambda each: seconds[each])
    assert f"eigenvectors tried: {tried}" in text_of(hvp.parent)
    assert f"{cheapest} eigenvectors are the cheapest" in ran.err + ran.out
    edit(hvp, ("configurations: 4", "configurations: 5"))
    wanted = missing(quarkline, hvp)
    assert wanted["walls_light"] == 1 and wanted.get("deflation_space", 0) == (cheapest != "0")


def test_noise_is_allotted_at_least_cost() -> None:
    """Neyman's N ~ sqrt(variance / cost), and no more than four times what there is."""
    cheap, dear = Kind("walls", 4, 2, 1024, 1.0, 1.0), Kind("noise vectors", 4, 2, 1024, 1.0, 4.0)
    assert allotted([cheap, dear], 1.0) == [12, 6] and allotted([dear, cheap], 1.0) == [6, 12]
    assert allotted([cheap, dear], 0.1) == [16, 16]


CONNECTED = """\
workflow: g2_connected
ENSEMBLE
links: {boundary: antiperiodic}
quarks: {light: {mass: 0.2}, strange: {mass: 0.3}}
currents: [one_link, conserved]
deflation: {vectors: 6, block: 2}
noise: {seed: 55, walls: 2}
solves: {block: 12, sloppy: {tolerance: 1.0e-8}}
store: store
report: connected
"""
ENSEMBLE = re.search(r"^ensemble:\n.*\n", HVP, re.M)[0].strip("\n")
DISCONNECTED = """\
workflow: g2_disconnected
ENSEMBLE
links: {action: hisq, boundary: antiperiodic}
masses: {light: 0.2, strange: 0.3}
deflation: {vectors: 6, block: 2}
noise: {kind: z2, seed: 55, vectors: 4, chunk: 4, dilution: {displacement: 2}}
solves: {solver: block_cgrq, precision: double-single, sloppy: {tolerance: 1.0e-8}}
current: {links: thin}
store: store
report: disconnected
"""


def test_keys_are_those_of_the_parts_own_workflows(quarkline: CommandLine, tmp_path: Path) -> None:
    """Eigenvectors are there once, loops and correlators of configurations are shared."""
    (hvp := tmp_path / "hvp.yaml").write_text(f"{HVP}deflation: {{vectors: 6, block: 2}}\n")
    ours = keys_by_node(quarkline, hvp)
    for name, text in (("c.yaml", CONNECTED), ("d.yaml", DISCONNECTED)):
        (tmp_path / name).write_text(text.replace("ENSEMBLE", ENSEMBLE))
        theirs = keys_by_node(quarkline, tmp_path / name)
        assert len(shared := theirs.keys() - {"average"}) > 5
        assert {node: ours[node] for node in shared} == {node: theirs[node] for node in shared}
    assert [node for node in ours if "deflation_space" in node] == ["deflation_space"]
    some = ("connected.only=heatbath-[01]", "disconnected.only=heatbath-[12]")
    options = (("--set", each) for each in (*some, "disconnected.estimator.low_modes=true"))
    wanted = missing(quarkline, hvp, *chain.from_iterable(options))
    assert [wanted[name] for name in ("deflation_space", "meson_fields", "low_modes")] == [3, 2, 2]


def keys_by_node(quarkline: CommandLine, file: Path) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for chunk in json.loads(quarkline("plan", file, "--json").out)["missing"]:
        found.setdefault(chunk["node"], set()).add(chunk["key"])
    return found


@pytest.mark.slow
def test_strong_isospin_breaking_is_one_row(hvp: Path, quarkline: CommandLine, cluster: str) -> None:
    """Of up, down and minus light, with the error of their sum, in which most of the noise cancels."""
    edit(hvp, ("strange: {mass: 0.3}", "strange: {mass: 0.3}, up: {mass: 0.19}, down: {mass: 0.21}"))
    assert quarkline("run", hvp, "--cluster", cluster).code == 0
    found = open_result(hvp.parent / "store", "a_mu").load()
    average = open_result(hvp.parent / "store", "average").load()
    names = ["light", "strange", "disconnected", "strong isospin"]
    assert list(found.part.values) == names and list(found.row.values)[:4] == names
    z = found.z_v.values
    quarks = dict(zip(found.term.values, z, strict=True))
    own = [
        (charge, average.correlator.sel(part=f"{quark} one_link"), quarks[quark])
        for charge, quark in ((4 / 9, "up"), (1 / 9, "down"), (-5 / 9, "light"))
    ]
    sum_of_three = sum(charge * correlator * z**2 / 64 for charge, correlator, z in own)
    np.testing.assert_allclose(
        found.correlator.sel(part="strong isospin"), sum_of_three, rtol=1e-9, atol=1e-14
    )
    each = found.sel(window="SD")
    assert each.budget.sel(row="total") == pytest.approx(float(each.budget.sel(row=names).sum()), rel=1e-12)
    partial = each.sel(part="strong isospin").partial_sum[-1]
    assert each.budget.sel(row="strong isospin") == pytest.approx(float(partial), rel=1e-9)
    error = each.sel(part="strong isospin").partial_sum_error[-1]
    assert each.budget_error.sel(row="strong isospin") == pytest.approx(float(error), rel=1e-9)


def test_noise_of_a_sum_over_times(hvp: Path) -> None:
    """That of the mean of the weighted sums of walls, by configuration; light and strange have the same."""
    found = open_result(hvp.parent / "store", "a_mu").load()
    walls = [open_result(hvp.parent / "store", f"walls_{quark}").load() for quark in ("light", "strange")]
    sums = []
    for data, charge, quark in zip(walls, (5 / 9, 1 / 9), ("light", "strange"), strict=True):
        c = data.correlator.values.real[:, :, :3].mean(axis=2)
        n = np.arange(5)
        weights = found.weight.values * charge * float(found.z_v.sel(term=quark)) ** 2 / 64
        cut = 2 if quark == "light" else 4
        sums.append(((c[..., n] + c[..., -n]) / 2)[..., : cut + 1] @ weights[:, : cut + 1].T)
    for wanted, values in ((found.stochastic.sel(part="light"), sums[0]), (found.noise[:, 0], sum(sums))):
        errors = values.std(axis=1, ddof=1) / np.sqrt(2)
        np.testing.assert_allclose(wanted, np.sqrt((errors**2).sum(axis=0)) / 4, rtol=1e-10)
    assert np.isnan(found.stochastic.sel(part="disconnected")).all()


@pytest.mark.slow
def test_from_links_to_a_mu(quarkline: CommandLine, tmp_path: Path, cluster: str) -> None:
    """Connected and disconnected, killed by a time limit, resumed, extended; as its parts' own workflows."""
    file = tmp_path / "hvp.yaml"
    file.write_text(HVP)
    assert quarkline("run", file, "--cluster", cluster, "--time-limit", "1s").code == 3
    assert quarkline("run", file, "--cluster", cluster).code == 0
    found = open_result(tmp_path / "store", "a_mu").load()
    assert np.isfinite(found.budget.sel(row="total")).all()
    assert (found.budget.sel(row=["light", "strange"]) > 0).all()
    edit(file, ("configurations: 4", "configurations: 5"))
    wanted = missing(quarkline, file)
    assert {name: wanted[name] for name in ("walls_light", "loops_light", "average")} == {
        "walls_light": 2, "loops_light": 1, "average": 1,
    }  # fmt: skip
