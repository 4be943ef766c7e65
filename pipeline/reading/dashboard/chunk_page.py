"""Pages without figures: a chunk's record, the chunks of a cell of the overview, the logs of a run."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from dask.utils import format_bytes
from tornado.web import RequestHandler

from pipeline.declare.coordinates import describe
from pipeline.declare.text import literal, literal_lines
from pipeline.reading.dashboard.facts.campaign import Campaign
from pipeline.reading.dashboard.look import PARTS_STYLE, STYLE, link, table
from pipeline.reading.report import Details, Section, templates
from pipeline.running.clusters.jobs import JobList
from pipeline.store.shelves import listed
from stages.base.errors import InputError

MOST_CHUNKS = 500
"""Chunks of a cell that are listed."""

LOG_END = 64 << 10
"""Bytes of the end of a log that are shown."""

DIGITS = r"[0-9a-f]{64}"
HEAD_STYLE = "h1 { font-size: 18px; overflow-wrap: anywhere; }"


class ContentPage(RequestHandler):
    """A page whose title and content a function gives by the parts of its address, in another thread."""

    def initialize(self, campaign: Campaign, content: Callable[..., tuple[str, Section]]) -> None:
        """Take the campaign that the page is of."""
        self._campaign, self._content = campaign, content

    async def get(self, *place: str) -> None:
        """Answer: 404 for what is not there."""
        try:
            title, section = await asyncio.to_thread(self._content, self._campaign, *place)
        except Exception as error:  # whose traceback would appear in the terminal of the run
            self.set_status(404)
            title, section = "not there", Section("", str(error))
        style = STYLE + PARTS_STYLE.replace(":host", "body") + HEAD_STYLE
        facts = {"title": literal(title), "section": section, "root": "../" * len(place), "style": style}
        self.write(literal_lines(templates().get_template("dashboard/page.html").render(facts)))


def patterns(campaign: Campaign) -> list[tuple[str, type[RequestHandler], dict[str, object]]]:
    """Handlers by path below the secret."""
    return [
        (rf"/chunk/([^/]+)/({DIGITS})", ContentPage, {"campaign": campaign, "content": record_of}),
        (r"/cell/([^/]+)/([^/]+)/(\d+)", ContentPage, {"campaign": campaign, "content": chunks_of_cell}),
        (r"/logs/([^/]+)", ContentPage, {"campaign": campaign, "content": logs_of}),
    ]


def record_of(campaign: Campaign, stage: str, key: str) -> tuple[str, Section]:
    """All that the record of a chunk says; StoreError where it cannot be read."""
    if stage not in campaign.store.stages() or not campaign.store.has(stage, key):
        raise InputError(f"no chunk {stage}/{key} in store {campaign.store.path}")
    record = campaign.store.record(stage, key)
    where = describe({dim: tuple(values) for dim, values in record["coordinates"].items()})
    return f"{record['node']} {where}", Section("", "", [table(("", ""), _rows(record))])


def _rows(value: object, name: str = "") -> Iterator[list[object]]:
    """A line for each number or text in a record; long lists stay together."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _rows(item, f"{name}.{key}" if name else str(key))
    elif value is None or isinstance(value, (int, float)):
        yield [name, str(value) if isinstance(value, bool) else value]
    else:
        yield [name, value if isinstance(value, str) else json.dumps(value)]


def chunks_of_cell(campaign: Campaign, workflow: str, node: str, column: str) -> tuple[str, Section]:
    """The chunks of a cell of the overview, each leading to its record."""
    keys, stage = campaign.look([lambda facts: _cell(facts, workflow, node, int(column))])[0]
    if not keys:
        raise InputError(f"no such part of a plan: {workflow}, {node}, column {column}")
    rows = [
        [link(key, f"../../../chunk/{stage}/{key}"), "stored"] if stored else [key, "not stored"]
        for key, stored in keys[:MOST_CHUNKS]
    ]
    more = [f"{len(keys) - MOST_CHUNKS:,} more are not listed"] if len(keys) > MOST_CHUNKS else []
    return f"{node}: {len(keys)} chunks", Section("", "", [table(("chunk", "state"), rows), *more])


def _cell(campaign: Campaign, workflow: str, node: str, column: int) -> tuple[list[tuple[str, bool]], str]:
    keys = campaign.grid.keys(workflow, node, column)
    stages = [row.stage for row in campaign.grid.rows if (row.workflow, row.node) == (workflow, node)]
    return [(key, key in campaign.chunks) for key in keys], stages[0] if stages else ""


def logs_of(campaign: Campaign, run: str) -> tuple[str, Section]:
    """Ends of a run's files, those of its jobs among them."""
    folder = next((entry for entry in listed(campaign.store.path / ".runs") if entry.name == run), None)
    if folder is None:
        raise InputError(f"no run {run} in store {campaign.store.path}")
    entries = [*listed(folder.path), *listed(JobList(Path(folder.path)).logs)]
    files = [each for each in entries if each.is_file(follow_symlinks=False) and each.name[0] != "."]
    return f"logs of run {run}", Section("", "", [_end(each) for each in sorted(files, key=lambda f: f.path)])


def _end(file: os.DirEntry[str]) -> Details:
    size = file.stat().st_size
    with open(file.path, "rb") as content:
        content.seek(max(0, size - LOG_END))
        text = content.read(LOG_END).decode(errors="replace")
    return Details(f"{literal(file.name)}, {format_bytes(size)}", text)
