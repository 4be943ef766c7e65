"""Report, the dashboard of a run and documentation in a browser, on a desk and on a phone.

With ``QUARKLINE_PICTURES=docs/pages`` the pictures that the documentation shows are made anew.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tiny_project import TINY

from support.chromium import Browser, Seen, browser, find_browser

pytestmark = pytest.mark.browser
ROOT = Path(__file__).parents[2]
WIDTHS = (1280, 390)
HALF_DONE = 15
"""Seconds, for a picture with something in it."""
LONGER = TINY.replace("[4, 4, 4, 4]", "[8, 8, 8, 8]").replace("configurations: 2", "configurations: 4")
COMMAND = [sys.executable, "-c", "import sys; from workflows.command import main; sys.exit(main())"]


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    program = find_browser()
    if program is None:
        pytest.skip("no Chromium is installed")
    with browser(program, tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture(scope="module")
def looked(tmp_path_factory: pytest.TempPathFactory, window: Browser) -> tuple[Path, dict[int, Seen]]:
    """The folder of a run that has ended, and its dashboard as it was on the way."""
    folder = tmp_path_factory.mktemp("run")
    (folder / "g2.yaml").write_text(LONGER.replace("vectors: 4", "vectors: 24"))
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [*COMMAND, "run", "g2.yaml"], cwd=folder, env=environment, stderr=subprocess.PIPE, text=True
    ) as run:
        assert run.stderr
        files = (re.match(r"dashboard: .* is in (\S+),", line) for line in run.stderr)
        link = Path(next(filter(None, files))[1]).read_text().strip()
        time.sleep(HALF_DONE)
        seen = {width: window.look(link, width, lambda text: "chunks are stored" in text) for width in WIDTHS}
        run.stderr.read()
        assert run.wait(timeout=200) == 0
    return folder, seen


def test_the_dashboard_of_a_run(looked: tuple[Path, dict[int, Seen]]) -> None:
    for width, seen in looked[1].items():
        keep(seen, "run", width)
        fits(seen, width)
        assert seen.title == "quarkline: campaign" and "chunks are stored" in seen.text


@pytest.mark.parametrize("width", WIDTHS)
def test_the_report(looked: tuple[Path, dict[int, Seen]], window: Browser, width: int) -> None:
    page = looked[0] / "report" / "index.html"
    seen = window.look(page.as_uri(), width, lambda text: "configurations" in text)
    keep(seen, "report", width)
    fits(seen, width)


BACKGROUND = "getComputedStyle(document.body).backgroundColor"
FIGURE = "getComputedStyle(document.querySelector('figure svg')).filter"


def test_reports_and_documentation_are_dark_where_the_browser_is(looked, site, window):
    pages = {
        looked[0] / "report" / "index.html": (FIGURE, "invert(0.917) hue-rotate(180deg)", "none"),
        site / "g2.html": ("document.body.dataset.mdColorScheme", "slate", "default"),
    }
    for page, (expression, *expected) in pages.items():
        after = f"JSON.stringify([{expression}, {BACKGROUND}])"
        answers = [
            json.loads(window.look(page.as_uri(), 1280, bool, dark=dark, after=after).answer)
            for dark in (True, False)
        ]
        assert [answer[0] for answer in answers] == expected
        brightness = [sum(map(int, re.findall(r"\d+", answer[1])[:3])) for answer in answers]
        assert brightness[0] < 150 < 600 < brightness[1]


def test_tables_of_a_forecast_fit_a_desk(looked: tuple[Path, dict[int, Seen]], window: Browser) -> None:
    folder = looked[0]
    (folder / "more.yaml").write_text(
        (folder / "g2.yaml").read_text().replace("configurations: 4", "configurations: 9")
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([*COMMAND, "plan", "more.yaml", "--forecast"], cwd=folder, env=environment, check=True)
    page = folder / "report" / "forecast" / "index.html"
    wide = "[...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth + 1).length"
    assert window.look(page.as_uri(), 1280, bool, after=wide).answer == 0
    lines = "Math.max(...[...document.querySelectorAll('td')].map(e => e.clientHeight / 20))"
    assert window.look(page.as_uri(), 390, bool, after=lines).answer < 5


@pytest.mark.parametrize("name", ["index", "tutorial", "keys_g2_disconnected"])
@pytest.mark.parametrize("width", WIDTHS)
def test_the_documentation(site: Path, window: Browser, name: str, width: int) -> None:
    seen = window.look((site / f"{name}.html").as_uri(), width, lambda text: "quarkline" in text)
    if name == "tutorial":
        keep(seen, "documentation", width)
    fits(seen, width)


def fits(seen: Seen, width: int) -> None:
    """Nothing is wider than the window or out of sight, no picture is missing, no script failed."""
    assert seen.width <= width and not seen.cut
    assert not seen.broken and not seen.errors


def keep(seen: Seen, name: str, width: int) -> None:
    """Where pictures are asked for, leave this one there."""
    if folder := os.environ.get("QUARKLINE_PICTURES"):
        Path(folder).mkdir(parents=True, exist_ok=True)
        (Path(folder) / f"{name}-{width}.png").write_bytes(seen.picture)
