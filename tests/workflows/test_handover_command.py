"""The hand-over of a store that a run made: its commands go on from where that run was."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

from tiny_project import CommandLine, missing, refused


def test_what_the_page_says_goes_on(quarkline, finished, tmp_path, monkeypatch):
    page = tmp_path / "page.html"
    answer = quarkline("status", finished / "store", "--handover", page, "--json")
    assert answer.code == 0, answer.err
    document = json.loads(answer.out)
    (workflow,) = document["workflows"]
    assert document["schema"] == "quarkline.handover/1" and workflow["missing"] == []
    assert workflow["file"] == (finished / "g2.yaml").read_text()
    assert workflow["folder"] == str(finished) and workflow["file"] in page.read_text()
    go, folder, also, *command = shlex.split(workflow["command"])
    assert (go, folder, also, command[:2]) == ("cd", str(finished), "&&", ["quarkline", "run"])
    monkeypatch.chdir(folder)
    _, _, file, *options = command
    assert missing(quarkline, Path(file), *options) == {}


def test_a_page_that_cannot_be_written_is_one_message(quarkline: CommandLine, finished: Path) -> None:
    in_a_file = finished / "g2.yaml" / "page.html"
    refused(quarkline("status", finished / "store", "--handover", in_a_file), "cannot write")
    refused(quarkline("status", finished / "nowhere", "--handover", "page.html"), "there is no store at")
