"""`quarkline plan --forecast`: without records, and after a pilot, whose chunks the run finds done."""

from __future__ import annotations

import json
from pathlib import Path

from tiny_project import TINY, CommandLine, missing

from workflows.commands.forecast import DOCUMENT

LOOPS = ("loops_light", "loops_strange", "loops_light_fine", "loops_strange_fine")


def test_a_forecast_without_records_says_so_and_a_pilot_makes_some(quarkline, cluster, tmp_path):
    (tmp_path / "g2.yaml").write_text(TINY)
    command = ("plan", "g2.yaml", "--cluster", cluster, "--forecast")
    blind = quarkline(*command, "--workers", "1")
    assert blind.code == 0, blind.err
    assert "no timings on that machine of configuration, observables, loops_light" in blind.out
    assert "--pilot makes some" in blind.out
    assert "on one GPU without records" in (tmp_path / "report/forecast/index.html").read_text()
    told = quarkline(*command, "--workers", "1", "--pilot", "--json")
    assert told.code == 0, told.err
    content = json.loads(told.out)
    assert set(content) == set(DOCUMENT.json_schema()["required"])
    assert content.pop("schema") == "quarkline.forecast/1"
    DOCUMENT.content(content)
    assert "which the run will find done" in told.err
    assert content["records"] == 6 and content["unknown"] == ["correlator", "average"]
    sigmas = {node["node"]: node["seconds"]["sigma"] for node in content["nodes"]}
    assert min(sigmas[name] for name in LOOPS if name in sigmas) < 0.5  # of others a busy machine knows less
    left = missing(quarkline, tmp_path / "g2.yaml")
    assert left["configuration"] == 1 and left["loops_light"] == 3


def test_a_pilot_without_a_forecast_is_a_mistake(quarkline: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "g2.yaml").write_text(TINY)
    answer = quarkline("plan", "g2.yaml", "--pilot")
    assert answer.code == 2 and "give --forecast, too" in answer.err
