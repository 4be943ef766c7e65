"""Pages without figures: a chunk's record, the chunks of a cell of the overview, the logs of a run."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from tornado.web import RequestHandler

from pipeline.declare.coordinates import describe
from pipeline.declare.text import format_bytes, literal, literal_lines
from pipeline.reading.dashboard.facts.campaign import Campaign
from pipeline.reading.dashboard.look import NOT_MEASURED, PARTS_STYLE, STYLE, link, table
from pipeline.reading.report import Cell, Details, Section, templates
from pipeline.running.clusters.jobs import JobList
from pipeline.store.shelves import listed
from stages.base.errors import InputError

MOST_CHUNKS = 500
"""Chunks of a cell that are listed."""

LOG_END = 64 << 10
"""Bytes of the end of a log that are shown."""

DIGITS = r"[0-9a-f]{64}"
CONTENT_STYLE = STYLE + PARTS_STYLE.replace(":host", "body")


class ContentPage(RequestHandler):
    """A page whose title and content a function gives by the parts of its address, in another thread."""

    def initialize(self, campaign: Campaign, content: Callable[..., Section]) -> None:
        """Take the campaign that the page is of."""
        self._campaign, self._content = campaign, content

    async def get(self, *place: str) -> None:
        """Answer: 404 for what is not there."""
        try:
            section = await asyncio.to_thread(self._content, self._campaign, *place)
        except Exception as error:  # whose traceback would appear in the terminal of the run
            self.set_status(404)
            section = Section("not there", str(error))
        page = templates().get_template("dashboard/page.html")
        facts = {"section": section, "root": "../" * len(place), "style": CONTENT_STYLE}
        self.write(literal_lines(page.render(facts)))


def patterns(campaign: Campaign) -> list[tuple[str, type[RequestHandler], dict[str, object]]]:
    """Handlers by path below the secret."""
    return [
        (rf"/chunk/([^/]+)/({DIGITS})", ContentPage, {"campaign": campaign, "content": record_of}),
        (r"/cell/([^/]+)/([^/]+)/(\d+)", ContentPage, {"campaign": campaign, "content": chunks_of_cell}),
        (r"/logs/([^/]+)", ContentPage, {"campaign": campaign, "content": logs_of}),
    ]


def record_of(campaign: Campaign, stage: str, key: str) -> Section:
    """All that the record of a chunk says; StoreError where it cannot be read."""
    if stage not in campaign.store.stages() or not campaign.store.has(stage, key):
        raise InputError(f"no chunk {stage}/{key} in store {campaign.store.path}")
    record = campaign.store.record(stage, key)
    where = describe({dim: tuple(values) for dim, values in record["coordinates"].items()})
    return Section(literal(f"{record['node']} {where}"), "", [table(("", ""), _rows(record))])


def _rows(value: object, name: str = "") -> Iterator[list[object]]:
    """A line for each number or text in a record; long lists stay together."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _rows(item, f"{name}.{key}" if name else str(key))
    elif value is None:
        yield [name, Cell(NOT_MEASURED, "unknown")]
    elif isinstance(value, (int, float)):
        yield [name, str(value) if isinstance(value, bool) else value]
    else:
        yield [name, value if isinstance(value, str) else json.dumps(value)]


def chunks_of_cell(campaign: Campaign, workflow: str, node: str, column: str) -> Section:
    """The chunks of a cell of the overview, each leading to its record."""

    def of_cell(facts: Campaign) -> list[tuple[str, str, bool]]:
        keys = facts.grid.keys(workflow, node, int(column))
        return [(key, stage, key in facts.chunks) for key, stage in keys.items()]

    (chunks,) = campaign.look([of_cell])
    if not chunks:
        raise InputError(f"no such part of a plan: {workflow}, {node}, column {column}")
    rows = [
        [link(key, f"../../../chunk/{stage}/{key}"), "stored"] if stored else [key, "not stored"]
        for key, stage, stored in chunks[:MOST_CHUNKS]
    ]
    more = [f"{len(chunks) - MOST_CHUNKS:,} more are not listed"] if len(chunks) > MOST_CHUNKS else []
    return Section(literal(f"{node}: {len(chunks)} chunks"), "", [table(("chunk", "state"), rows), *more])


def logs_of(campaign: Campaign, run: str) -> Section:
    """Ends of a run's files, those of its jobs among them."""
    folder = next((entry for entry in listed(campaign.store.path / ".runs") if entry.name == run), None)
    if folder is None:
        raise InputError(f"no run {run} in store {campaign.store.path}")
    entries = [*listed(folder.path), *listed(JobList(Path(folder.path)).logs)]
    files = [each for each in entries if each.is_file(follow_symlinks=False) and each.name[0] != "."]
    ends = [_end(each) for each in sorted(files, key=lambda each: each.path)]
    return Section(literal(f"logs of run {run}"), "", ends)


def _end(file: os.DirEntry[str]) -> Details:
    size = file.stat().st_size
    with open(file.path, "rb") as content:
        content.seek(max(0, size - LOG_END))
        text = content.read(LOG_END).decode(errors="replace")
    return Details(f"{literal(file.name)}, {format_bytes(size)}", text)
