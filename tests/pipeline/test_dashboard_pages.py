"""Pages of the dashboard: their panels show the facts, and they are served during a run."""

from __future__ import annotations

import asyncio
import html
import re
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import toy_stages as toys
from bokeh.document import Document
from bokeh.models import ColumnDataSource, Div
from dashboard_facts import read_whole
from tornado.httpclient import AsyncHTTPClient

from pipeline import Outcome, Place, Store, Workflow, plan, run
from pipeline.reading.dashboard.door import Door
from pipeline.reading.dashboard.facts.campaign import Campaign, campaign_of
from pipeline.reading.dashboard.pages import Follower, application, pages_with
from pipeline.reading.dashboard.panel import Page, Panel
from pipeline.running.clusters.local import Local
from pipeline.store.record import Record
from stages.base.errors import InputError
from workflows.shared.dashboard import DASHBOARD
from workflows.shared.dashboard.samples import Samples

EVIL = "<script>alert(1)</script>"
PAGES = pages_with(DASHBOARD)


@pytest.fixture
def finished(store: Store, compute: Callable[[Workflow], Outcome]) -> Store:
    w = Workflow("w")
    links = w.add(toys.fragile, w.add(toys.field, place=Place(over={"config": ["a", EVIL]})), bad=(EVIL,))
    w.add(toys.loops, links, place=Place(over={"noise": range(4)}, chunk={"noise": 2}), mass=0.1)
    compute(w)
    return store


def shown(address: str, campaign: Campaign) -> tuple[str, list[dict[str, Any]]]:
    """All text of a page, and the data of its figures, once all panels were drawn."""
    (page,) = (page for page in PAGES if page.address == address)
    document, follower = Document(), Follower(campaign, page)
    document.add_root(follower.root)
    asyncio.run(follower.look())
    for _ in range(sum(map(len, page.rows)) + 1):
        follower.show_next()
    texts = [model.text for model in document.select({"type": Div})]
    return " ".join(texts), [dict(model.data) for model in document.select({"type": ColumnDataSource})]


def test_the_overview_shows_states_by_node_and_configuration(finished: Store) -> None:
    text, figures = shown("quarkline", read_whole(finished))
    assert "<b>5</b>of 8 chunks are stored" in text and "<b>1</b>failed" in text
    assert "<b>not measured</b>energy" in text
    legend = re.findall(r"<span><i [^>]*></i>([^<]*)</span>", text)
    assert len(legend) == 5 and legend[0] == "all is stored" and "the paler, the less" in legend[1]
    assert f"config: {html.escape(EVIL)} … a</p>" in text  # one to a column, which needs no word
    cells = next(data for data in figures if "alpha" in data)
    states = {
        (node, named): text
        for node, named, text in zip(cells["node"], cells["named"], cells["text"], strict=True)
    }
    assert states["loops", "a"] == "2 of 2 stored" and states["loops", EVIL] == "0 of 2 stored"
    assert states["fragile", EVIL] == "0 of 1 stored, 1 failed"
    assert EVIL not in text and "&lt;script&gt;" in text and "Traceback" in text


def test_resources_say_what_was_not_measured(finished: Store) -> None:
    text, _ = shown("quarkline-resources", read_whole(finished))
    assert "not measured: no record has joules" in text
    unfilled = (
        "planned memory; GPU memory, most; measured / planned; joules; chunks metered; GFLOP/s; of copy"
    )
    assert f"(no values: {unfilled} bandwidth; joules × variance)" in html.unescape(text)
    heads = re.findall(r"<th[^>]*>([^<]*)</th>", text)
    assert heads == ["node", "chunks", "work", "host memory, most"]
    text, _ = shown("quarkline-jobs", read_whole(finished))
    assert "no limit" in text and "no batch jobs" in text and "4 done" not in text


def test_each_gpu_has_a_row(finished: Store) -> None:
    campaign = read_whole(finished)
    text, _ = shown("quarkline-resources", campaign)
    assert "no record is of a GPU" in text
    facts = {"device_bytes": 3 << 30, "joules": 600.0, "busy": 0.5, "nvlink_received": 8 * 10**9}
    shared = [{"gpu": "01:00", **facts, "nvlink_sent": 4 * 10**9}, {"gpu": "02:00", "device_bytes": 2 << 30}]
    about = Record(node="n", host="h<1>", finished="2026-01-01", gpus=shared)
    for seconds in (2.0, 6.0):
        campaign.records._add("s", "k", replace(about, seconds=seconds))
    text, _ = shown("quarkline-resources", campaign)
    rows = text.partition("<h2>GPUs</h2>")[2].split("<tr>")[2:4]
    assert [re.findall(r"<td[^>]*>([^<]*)</td>", row) for row in rows] == [
        ["h&lt;1&gt; 01:00", "2", "8 s", "3.00 GiB", "50 %", "1,200", "150", "7.45 GiB", "14.90 GiB", "1"],
        ["h&lt;1&gt; 02:00", "2", "8 s", "2.00 GiB", *["–"] * 6],
    ]


def test_solves_show_errors_of_samples(finished: Store) -> None:
    campaign = read_whole(finished)
    _, figures = shown("quarkline-solves", campaign)
    curve = campaign.own(Samples).curves["loops"]
    lines = [data for data in figures if data.get("x") == [curve.counts]]
    assert [curve.errors] in [data["y"] for data in lines]
    (scaled,) = (data["y"][0] for data in lines if data["y"] != [curve.errors])
    assert scaled[-1] == pytest.approx(curve.errors[-1])
    assert scaled[0] == pytest.approx(scaled[-1] * (curve.counts[-1] / curve.counts[0]) ** 0.5)


class Failing:
    """A campaign of which no fact can be had."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def look(self, reads: object) -> list[Any]:
        raise self._error


def notice(campaign: object, *panels: Panel) -> str:
    """What a page of these panels says of itself."""
    follower = Follower(campaign, Page("a", "page", (panels,)))  # type: ignore[arg-type]
    asyncio.run(follower.look())
    follower.show_next()
    follower.show_next()
    return follower.notice.text


def test_pages_say_that_a_store_is_away_and_at_the_end_of_a_run_nothing_new() -> None:
    assert notice(Failing(InputError("no <store>"))) == "<p>no &lt;store&gt;</p>"
    assert notice(Failing(asyncio.CancelledError())) == "<p>reading the store</p>"


@pytest.mark.parametrize("error", [RuntimeError("Executor shutdown has been called"), KeyError("<stage>")])
def test_a_page_that_fails_says_so_on_the_page(error: Exception) -> None:
    """Bokeh's tracebacks would appear in the terminal of the run."""

    def show(facts: object) -> None:
        raise error

    panel = Panel(lambda campaign: 1, lambda: (Div(), show))
    reading = SimpleNamespace(look=lambda reads: [each(None) for each in reads])
    for text in (notice(Failing(error)), notice(reading, panel)):
        assert (
            text.startswith(f"<p>a part of this page fails: {type(error).__name__}") and "<stage" not in text
        )


def test_a_run_goes_on_without_its_dashboard(store, monkeypatch, capfd):
    def fail(*_: object) -> None:
        raise ImportError("no module named bokeh")

    monkeypatch.setattr("pipeline.reading.dashboard.pages.application", fail)
    w = Workflow("w")
    w.add(toys.field, place=Place(over={"config": ["a"]}))
    assert run(plan(w, store), store, cluster=Local(workers=1)).exit_status == 0
    said = capfd.readouterr().err
    assert said.count("warning: there is no dashboard (ImportError: no module named bokeh)") == 1
    assert "Traceback" not in said


def test_records_cells_and_logs_have_addresses_below_the_secret(finished: Store) -> None:
    key = sorted(finished.keys("loops"))[0]
    paths = {
        f"chunk/loops/{key}": (200, finished.record("loops", key)["digest"]),
        f"chunk/loops/{'0' * 64}": (404, "no chunk"),
        f"chunk/.runs/{key}": (404, "no chunk"),
        "cell/w/loops/1": (200, key),
        "cell/w/loops/77": (404, "no such part"),
        f"logs/{sorted((finished.path / '.runs').iterdir())[0].name}": (200, "events.jsonl"),
        "logs/..": (404, ""),
        "logs/%2e%2e": (404, "no run"),
    }

    async def ask() -> None:
        read_whole(finished)
        door = Door(0, lambda token: application(token, finished, [DASHBOARD]))
        server = door.serve()
        client, root = AsyncHTTPClient(), f"http://127.0.0.1:{door.port}"
        for path, (status, words) in paths.items():
            answer = await client.fetch(f"{root}/{door.token}/{path}", raise_error=False)
            assert (answer.code, words in answer.body.decode()) == (status, True), path
            assert EVIL not in answer.body.decode()
            refused = await client.fetch(f"{root}/{path}", raise_error=False)
            assert refused.code == 403, path
        for page in PAGES:
            assert (await client.fetch(f"{root}/{door.token}/{page.address}")).code == 200
        server.stop()

    asyncio.run(ask())


def test_all_who_look_at_a_store_share_its_facts(finished: Store) -> None:
    assert campaign_of(finished.path) is campaign_of(finished.path)
    with pytest.raises(InputError, match="no store"):
        campaign_of(finished.path / "gone")
