"""The dashboard of a store in a browser: its numbers are the store's; desk and phone, light and dark.

With ``QUARKLINE_PICTURES=docs/pages`` the pictures that the documentation shows are made anew.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from test_pages_in_browser import COMMAND, ROOT, fits, keep
from tiny_project import TINY

from pipeline import Store, status
from support.chromium import Browser, browser, find_browser

pytestmark = pytest.mark.browser
DEFLATED = TINY.replace("noise:\n", "deflation: {vectors: 16, block: 8, tolerance: 1.0e-6}\nnoise:\n", 1)
CAMPAIGN = DEFLATED.replace("vectors: 4", "vectors: 16").replace("configurations: 2", "configurations: 5")
WIDTHS = (1280, 390)


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    program = find_browser()
    if program is None:
        pytest.skip("no Chromium is installed")
    with browser(program, tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@contextmanager
def served(folder: Path, store: str) -> Iterator[str]:
    """The root of the pages of a store, until the block ends, by Ctrl-C."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [*COMMAND, "dashboard", store]
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as serving:
        assert serving.stdout and serving.stderr
        try:
            link = re.match(r"dashboard: (\S+)/quarkline", serving.stdout.readline())
            assert link, serving.stderr.read()
            assert re.match(r"from elsewhere: ssh -L (\d+):127.0.0.1:\1 ", serving.stdout.readline())
            yield link[1]
        finally:
            serving.send_signal(signal.SIGINT)
            said = serving.communicate(timeout=20)[1]
    assert serving.returncode == 0 and "Traceback" not in said


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("campaign")
    (made / "g2.yaml").write_text(CAMPAIGN)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([*COMMAND, "run", "g2.yaml"], cwd=made, env=environment, check=True, timeout=250)
    for chunk in sorted((made / "store" / "current_loops").glob("*/*"))[:13]:
        chunk.unlink()  # some are left to do
    return made


@pytest.fixture(scope="module")
def root(folder: Path) -> Iterator[str]:
    with served(folder, "store") as address:
        yield address


@pytest.mark.parametrize("width", WIDTHS)
def test_the_campaign_is_that_of_the_store(root: str, folder: Path, window: Browser, width: int) -> None:
    seen = window.look(
        f"{root}/quarkline", width, lambda text: "of 0 chunks" not in text and "stored" in text
    )
    if width == WIDTHS[0]:
        keep(seen, "dashboard", width)
    fits(seen, width)
    nodes = status(Store(folder / "store")).nodes
    stored, chunks = sum(node.stored for node in nodes), sum(node.chunks for node in nodes)
    assert chunks - stored == 13
    assert re.search(rf"\b{stored}\s+of {chunks} chunks are stored", seen.text)
    assert "not measured" in seen.text  # energy, on a CPU


def test_dark_pages_are_dark(root: str, window: Browser) -> None:
    ready, colour = lambda text: "are stored" in text, "getComputedStyle(document.body).backgroundColor"
    seen = window.look(f"{root}/quarkline", 1280, ready, dark=True, after=colour)
    keep(seen, "dashboard-dark", 1280)
    fits(seen, 1280)
    assert seen.answer == "rgb(21, 24, 28)"
    axes = "[...Bokeh.documents[0]._all_models.values()].filter(m => m.type == 'CategoricalAxis')"
    colour = f"{axes}.map(axis => axis.major_label_text_color).join()"
    assert window.look(f"{root}/quarkline", 1280, ready, dark=True, after=colour).answer == "#d5d9de"
    assert window.look(f"{root}/quarkline", 1280, ready, after=colour).answer == "#30353b"


@pytest.mark.parametrize("page", ["solves", "resources", "jobs"])
@pytest.mark.parametrize("width", WIDTHS)
def test_the_other_pages_fit(root: str, window: Browser, page: str, width: int) -> None:
    seen = window.look(f"{root}/quarkline-{page}", width, _says(WORDS[page]))
    if (page, width) == ("solves", WIDTHS[1]):
        keep(seen, f"dashboard-{page}", width)
    fits(seen, width)


WORDS = {"solves": "Multigrid setups", "resources": "average", "jobs": "no limit"}


def _says(words: str) -> Callable[[str], bool]:
    return lambda text: words in text


def test_numbers_of_solves_are_those_of_the_records(root: str, folder: Path, window: Browser) -> None:
    lines = "[...Bokeh.documents[0]._all_models.values()].filter(m => m.type == 'ColumnDataSource')"
    ends = f"{lines}.flatMap(s => (s.data.label ?? []).map((name, k) => [name, s.data.y[k].at(-1)]))"
    ready = _says("Multigrid setups")
    seen = window.look(f"{root}/quarkline-solves", 1280, ready, after=f"JSON.stringify({ends})")
    store, known = Store(folder / "store"), set()
    for stage, name, of in (("current_loops", "history", -1), ("deflation_space", "convergence", (-1, 2))):
        for key in store.keys(stage):
            value = store.record(stage, key)["statistics"][name]
            known.add(value[-1] if of == -1 else value[-1][2])
    shown = [value for _, value in json.loads(seen.answer)]
    assert len(shown) >= 12 and set(shown) <= known


@pytest.mark.parametrize("width", WIDTHS)
def test_a_link_leads_to_the_record_of_a_chunk(root: str, folder: Path, window: Browser, width: int) -> None:
    store = Store(folder / "store")
    key = sorted(store.keys("current_loops"))[0]
    record = store.record("current_loops", key)
    seen = window.look(f"{root}/chunk/current_loops/{key}", width, lambda text: "digest" in text)
    fits(seen, width)
    for value in (record["digest"], record["finished"], record["statistics"]["solver"]):
        assert value in seen.text
    assert re.search(r"joules\s+not measured", seen.text)
