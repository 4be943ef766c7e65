"""Mistakes in a file of the workflow `mesons`: one clear message, nothing started."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tiny_mesons import MESONS
from tiny_project import CommandLine, edit, refused


@pytest.fixture
def mesons(tmp_path: Path) -> Path:
    file = tmp_path / "mesons.yaml"
    file.write_text(MESONS)
    return file


SOURCES = "{kind: point, times: [0, 2]}"


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((4, 4, 4, 4, 4, 3, 12), None),
        ((4, 4, 4, 4, 4, 3, 4), None),
        ((4, 4, 4, 4, 4, 3), "a.npy has 1 columns, but mesons take 12 or 4"),
        ((6, 4, 4, 4, 4, 3, 12), "but a source on 4x4x4x4 is complex (4, 4, 4, 4, 4, 3)"),
    ],
)
def test_sources_in_files(quarkline, mesons, shape, message):
    np.save(mesons.parent / "a.npy", np.ones(shape, complex))
    edit(mesons, (SOURCES, "{kind: file, files: '*.npy'}"))
    answer = quarkline("plan", mesons)
    if message:
        refused(answer, message)
    else:
        assert answer.code == 0 and "7 chunks" in answer.out


def test_sources_in_files_that_are_one_or_nothing(quarkline: CommandLine, mesons: Path) -> None:
    for folder, value in (("first", 1), ("second", 0)):
        (mesons.parent / folder).mkdir()
        np.save(mesons.parent / folder / "a.npy", np.full((4, 4, 4, 4, 4, 3, 4), value, complex))
    edit(mesons, (SOURCES, "{kind: file, files: '*/a.npy'}"))
    refused(quarkline("plan", mesons), "first/a.npy", "second/a.npy", "have one name", "rename one")
    edit(mesons, ("*/a.npy'", "second/a.npy', chunk: 2"))
    refused(
        quarkline("plan", mesons), "`sources.chunk` (line 5): sources in files are solved for one at a time"
    )
    edit(mesons, (", chunk: 2", ""))
    refused(quarkline("plan", mesons), "second/a.npy: a source is zero everywhere")
