"""Certificates: what is checked, wrong kernels that are found by name, results that name one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from test_machine_operation import document
from tiny_project import CommandLine

from pipeline.worker import certificate as engine
from workflows.benchmarks import machine
from workflows.certification import certificate
from workflows.certification.certificate import certify
from workflows.certification.check import Check, Device, Status, measured
from workflows.certification.noise_bits import noise_bits
from workflows.certification.operands import Hosted, difference
from workflows.certification.ward import ward_identities

KINDS = {"noise": noise_bits, "Ward identities": ward_identities}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own; its folder of certificates."""
    monkeypatch.setenv("QUARKLINE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(machine, "HOST_COPY_BYTES", 1 << 16)
    return tmp_path / "cache" / "certificates"


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """only(kinds): leave the other kinds of checks out."""

    def choose(*names: str) -> None:
        monkeypatch.setattr(certificate, "KINDS", {name: KINDS[name] for name in names})

    return choose


def failed(checks: tuple[Check, ...]) -> set[str]:
    return {check.name for check in checks if check.status is Status.FAILED}


def test_a_certificate_is_what_its_id_says_and_results_name_it(folder: Path, only, monkeypatch) -> None:
    only("noise")
    assert engine.certification("cpu")["certificate"] is None
    assert "no certificate of this machine and device" in engine.certification("cpu")["uncertified"]
    made = certify("cpu")
    assert made.certified and made.file == folder / f"{made.id}.json"
    content = json.loads(made.file.read_text())
    assert (folder.parent / "copy_bandwidth.json").exists()
    assert content["id"] == made.id == engine.certificate_id(content)
    assert content["subject"]["code"] == engine.digest_of(engine.QUARKLINE)
    assert engine.certification("cpu") == {"certificate": made.id}
    ours = engine.subject("cpu")
    monkeypatch.setattr(engine, "subject", lambda backend: replace(ours, code="0" * 64))
    engine._found.cache_clear()
    other = engine.certification("cpu")
    assert other["certificate"] is None and f"{made.id[:12]} is of other code" in other["uncertified"]
    monkeypatch.undo()
    monkeypatch.setenv("QUARKLINE_CACHE", str(folder.parent))
    made.file.write_text(made.file.read_text().replace('"deviation": 0.0', '"deviation": 0.1', 1))
    engine._found.cache_clear()
    assert engine.certification("cpu")["certificate"] is None


@pytest.mark.slow
def test_the_checks_that_are_quick(folder: Path, only) -> None:
    """All pass, and kernels are compared on the way; what is not compared is said."""
    only("noise", "Ward identities")
    made = certify("cpu")
    assert made.certified, failed(made.checks)
    names = {check.name for check in made.checks if check.status is Status.PASSED}
    assert {"noise: Philox4x32-10", "noise: z4 counters"} <= names
    assert "kernel: hisq_dslash.hisq_dslash, double, reference" in names
    assert "kernel: wilson_dslash.wilson_hop, double, reference" in names
    assert all(check.reason for check in made.checks if check.status is Status.SKIPPED)
    assert all(check.deviation <= check.limit for check in made.checks if check.name in names)


def negated(result: Any, arguments: tuple[Any, ...]) -> Any:
    return np.negative(result)


def one_value(result: Any, arguments: tuple[Any, ...]) -> Any:
    result.reshape(-1)[7] *= -1
    return result


def one_site_of_out(result: Any, arguments: tuple[Any, ...]) -> Any:
    arguments[2][5] *= 1 + 1e-3
    return result


WARD = {"Ward identity: one-link current of naive staggered quarks"}
BITS = {f"noise: {kind} bits" for kind in ("z2", "z4", "u1")}
CURRENT, HISQ = (
    {f"kernel: {name}, double, reference"}
    for name in ("slice_products.one_link_current", "hisq_dslash.hisq_dslash")
)
WRONG = [
    pytest.param(
        "slice_products.one_link_current", negated, "Ward identities", WARD | CURRENT, marks=pytest.mark.slow
    ),
    ("random_numbers.noise", one_value, "noise", BITS),
    ("hisq_dslash.hisq_dslash", one_site_of_out, "Ward identities", WARD | HISQ),
]


@pytest.mark.parametrize(("kernel", "harm", "kind", "noticed"), WRONG)
def test_a_wrong_kernel_is_refused_by_name(folder, only, monkeypatch, quarkline, kernel, harm, kind, noticed):
    """The physics and the oracle find it; a certificate that there was is withdrawn."""
    only("noise")
    before = certify("cpu").id
    family, name = kernel.split(".")
    module = import_module(f"stages.lqcd.kernels.cpu.{family}")
    right = getattr(module, name)

    @wraps(right)
    def wrong(*arguments: Any, **named: Any) -> Any:
        return harm(right(*arguments, **named), arguments)

    monkeypatch.setattr(module, name, wrong)
    only(kind)
    answer = quarkline("certify", "--json")
    content = document("certify", answer.out)
    assert answer.code == 1 and not content["certified"] and content["id"] is None
    found = {check["name"] for check in content["checks"] if check["status"] == "failed"}
    assert noticed <= found, found
    assert content["withdrawn"] == [before] and not list(folder.glob("*.json"))
    assert engine.certification("cpu")["certificate"] is None


def test_a_check_that_raises_has_failed_and_others_go_on(folder: Path, monkeypatch) -> None:
    def raises(device: Device) -> Iterator[Check]:
        yield measured("first", "nothing", 0.0, 0.0)
        raise ZeroDivisionError("by hand")

    def follows(device: Device) -> Iterator[Check]:
        yield measured("last", "no number", float("nan"), 1.0)

    monkeypatch.setattr(certificate, "KINDS", {"odd": raises, "even": follows})
    made = certify("cpu")
    by_name = {check.name: check for check in made.checks}
    assert by_name["first"].status is Status.PASSED and by_name["odd"].reason == "ZeroDivisionError: by hand"
    assert failed(made.checks) == {"odd", "last"} and made.id is None and not folder.exists()
    text = certificate.certification_text(made)
    assert "FAILED   odd: ZeroDivisionError: by hand" in text and "not certified" in text


def test_store_and_messages(folder: Path, only, quarkline: CommandLine) -> None:
    only("noise")
    answer = quarkline("certify", "--store", "store")
    (copy,) = Path("store/.certificates").glob("*.json")
    assert (
        answer.code == 0 and copy.stem in answer.out and copy.read_text() == (folder / copy.name).read_text()
    )
    assert quarkline("verify", "store").code == 0
    wrong = quarkline("certify", "--data", "nowhere", "--json")
    assert wrong.code == 2 and "nowhere holds no reference data" in document("error", wrong.out)["error"]


@pytest.mark.slow
def test_report_and_exports_name_certificates(quarkline: CommandLine, project: Path) -> None:
    """Of a run that has none, they say so and why."""
    answer = quarkline("report", project)
    assert answer.code == 0
    page = (project.parent / "report" / "index.html").read_text()
    assert "Why results have no certificate" in page and "quarkline certify --backend cpu makes one" in page
    quarkline("export", project, "--to", "hdf5", "--result", "average")
    with h5py.File(project.parent / "report" / "average.h5") as file:
        assert file.attrs["certificate"] == "none"


def test_memory_that_is_input_and_output_is_one_array_for_the_twin() -> None:
    x = np.arange(6.0).reshape(2, 3)
    hosted = Hosted([x, x.reshape(2, 3)], {"out": x}, lambda value: None)
    assert hosted.arguments[0] is hosted.arguments[1] is hosted.named["out"] and len(hosted.arrays) == 1


def test_difference_looks_at_what_was_written() -> None:
    before = np.array([1e300, np.nan, 1.0, 2.0])
    expected, found = (np.array([1e300, np.nan, 3.0, value]) for value in (4.0, 4.4))
    assert difference(found, expected, before) == pytest.approx(0.1)
    assert difference(expected, expected, before) == 0
    assert difference(before, expected, before) == pytest.approx(0.5)
    assert difference(np.array([1, 2]), np.array([1, 3]), None) == np.inf
    codes = np.array(
        [1, 40000, 65535], np.uint16
    )  # of 16 bits with a scale: a number may be rounded either way
    assert difference(codes, codes - np.array([0, 1, 0], np.uint16), 0 * codes) == pytest.approx(1 / 32768)


@pytest.mark.slow
def test_this_machine(folder: Path, quarkline: CommandLine, reference_data: Path) -> None:
    """The command as it is; every kind of reference entry is known."""
    content = document("certify", quarkline("certify", "--data", reference_data, "--json").out)
    assert content["certified"], [check for check in content["checks"] if check["status"] == "failed"]
    reasons = {check["reason"] for check in content["checks"] if check["name"].startswith("reference: ")}
    assert reasons == {"", "it takes longer: --full"}


@pytest.mark.gpu
def test_this_device(folder: Path, quarkline: CommandLine) -> None:
    """Each kernel that is called is compared with the processor's."""
    answer = quarkline("certify", "--backend", "cuda", "--json")
    content = document("certify", answer.out)
    assert content["certified"], [check for check in content["checks"] if check["status"] == "failed"]
    compared = [check["name"] for check in content["checks"] if check["name"].endswith(", cpu")]
    assert len(compared) > 40 and answer.code == 0
