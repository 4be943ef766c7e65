"""`quarkline tune` without a GPU, and what it prints of a tuning."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny_project import TINY, CommandLine

pytest.importorskip("cupy", reason="the tuner lives with the CUDA kernels")

import cupy

from stages.lqcd.kernels.cuda.tuning.table import Finding
from workflows.commands.tune import DOCUMENT
from workflows.tuning import Tuning, tuning_text

MODEL = {"groups": 32, "blocks": 1056}
FINDINGS = [
    Finding("dots n=16", "dots n=16 source=ab", MODEL, 2e-5, MODEL, 2e-5, 12, ()),
    Finding(
        "norms2 n=16", "norms2 n=16 source=ab", MODEL, 2e-5, {**MODEL, "groups": 8}, 1.5e-5, 12, ("odd",)
    ),
]
TUNING = Tuning("NVIDIA H200", Path("cache/t.json"), FINDINGS, ["dslash n=64"], 3.21)


@pytest.mark.skipif(cupy.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_is_one_clear_error(quarkline: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "g2.yaml").write_text(TINY)
    answer = quarkline("tune", "g2.yaml")
    assert answer.code == 2 and answer.out == ""
    assert answer.err.startswith(
        "error: quarkline tune times kernels on a GPU, and there is no CUDA device here"
    )
    assert "quarkline[cuda13]" in answer.err and answer.err.count("\n") == 1


def test_a_missing_workflow_file_is_one_clear_error(quarkline: CommandLine) -> None:
    answer = quarkline("tune", "none.yaml")
    assert answer.code == 2 and "none.yaml" in answer.err and "Traceback" not in answer.err


def test_the_table_shows_gains_first_and_says_where_it_went() -> None:
    lines = tuning_text(TUNING).splitlines()
    assert lines[0].split() == ["kernel", "model,", "us", "best,", "us", "gain", "chosen", "instead"]
    assert lines[2].split() == ["norms2", "n=16", "20.0", "15.0", "25.0", "%", "groups=8"]
    assert lines[3].split() == ["dots", "n=16", "20.0", "20.0", "0.0", "%"]
    assert lines[4:6] == ["not measured: dslash n=64", "rejected: norms2 n=16: odd"]
    assert lines[6] == (
        "2 kernels on NVIDIA H200 in 3.21 s, 1 of them faster in another shape than the model's: cache/t.json"
    )


def test_json_holds_the_same() -> None:
    content = DOCUMENT.content(TUNING)
    assert content["file"] == "cache/t.json" and content["device"] == "NVIDIA H200"
    assert content["findings"][1]["shape"] == {"groups": 8, "blocks": 1056}
    assert content["findings"][1]["seconds"] == 1.5e-5
