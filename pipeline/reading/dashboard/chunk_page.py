"""Pages without figures: a chunk's record, the chunks of a cell of the overview, the logs of a run."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from html import escape
from pathlib import Path
from typing import Any

from dask.utils import format_bytes
from tornado.web import HTTPError, RequestHandler

from pipeline.declare.coordinates import describe
from pipeline.declare.text import literal, literal_lines
from pipeline.reading.dashboard.facts.campaign import Campaign
from pipeline.reading.dashboard.look import TABLE_CSS, Cell, Linked, table
from pipeline.reading.dashboard.theme import STYLE
from pipeline.running.clusters.jobs import JobList
from pipeline.store.shelves import listed
from stages.base.errors import InputError

MOST_CHUNKS = 500
"""Chunks of a cell that are listed."""

LOG_END = 64 << 10
"""Bytes of the end of a log that are shown."""

DIGITS = r"[0-9a-f]{64}"

FRAME = """<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><style>{style}</style></head>
<body><nav><b>quarkline</b><a href="{root}quarkline">campaign</a></nav><h1>{title}</h1>{body}</body></html>"""


class _Page(RequestHandler):
    """A page of HTML, made in another thread."""

    root = "../../"
    """The way to the other pages."""

    def initialize(self, find: Callable[[], Campaign | None]) -> None:
        """Take the campaign that pages are of."""
        self._find = find

    async def get(self, *place: str) -> None:
        """Answer: 404 for what is not there."""
        campaign = self._find()
        if campaign is None:
            raise HTTPError(404, "no run has begun")
        try:
            title, body = await asyncio.to_thread(self.content, campaign, *place)
        except Exception as error:  # whose traceback would appear in the terminal of the run
            self.set_status(404)
            title, body = "not there", f"<p>{escape(literal_lines(str(error)))}</p>"
        style = (
            STYLE + TABLE_CSS.replace(":host", "body") + "h1 { font-size: 18px; overflow-wrap: anywhere; }"
        )
        self.write(FRAME.format(title=escape(literal(title)), style=style, body=body, root=self.root))

    @staticmethod
    def content(campaign: Campaign, *place: str) -> tuple[str, str]:
        """Title and body."""
        raise NotImplementedError


class ChunkPage(_Page):
    """`chunk/<stage>/<key>`: all that the record says."""

    @staticmethod
    def content(campaign: Campaign, *place: str) -> tuple[str, str]:
        """The record as a table; StoreError where it cannot be read."""
        stage, key = place
        if stage not in campaign.store.stages() or not campaign.store.has(stage, key):
            raise InputError(f"no chunk {stage}/{key} in store {campaign.store.path}")
        record = campaign.store.record(stage, key)
        where = describe({dim: tuple(values) for dim, values in record["coordinates"].items()})
        return f"{record['node']} {where}", table(("", ""), _rows(record))


def _rows(value: Any, name: str = "") -> Iterator[list[Cell]]:
    """A line for each number or text in a record; long lists stay together."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _rows(item, f"{name}.{key}" if name else str(key))
    elif value is None or isinstance(value, (int, float)):
        yield [name, str(value) if isinstance(value, bool) else value]
    else:
        yield [name, value if isinstance(value, str) else json.dumps(value)]


class CellPage(_Page):
    """`cell/<workflow>/<node>/<column>`: chunks of a cell of the overview, each leading to its record."""

    root = "../../../"

    @staticmethod
    def content(campaign: Campaign, *place: str) -> tuple[str, str]:
        """A table of keys."""
        workflow, node, column = place
        keys, stage = campaign.look([lambda c: _cell(c, workflow, node, int(column))])[0]
        if not keys:
            raise InputError(f"no such part of a plan: {workflow}, {node}, column {column}")
        rows: list[list[Cell]] = [
            [
                Linked(key, f"../../../chunk/{stage}/{key}") if stored else key,
                "stored" if stored else "not stored",
            ]
            for key, stored in keys[:MOST_CHUNKS]
        ]
        more = f"<p>{len(keys) - MOST_CHUNKS:,} more are not listed</p>" if len(keys) > MOST_CHUNKS else ""
        return f"{node}: {len(keys)} chunks", table(("chunk", "state"), rows) + more


def _cell(campaign: Campaign, workflow: str, node: str, column: int) -> tuple[list[tuple[str, bool]], str]:
    rows = [row for row in campaign.grid.rows if (row.workflow, row.node) == (workflow, node)]
    keys = [key for row in rows for key, place in row.place.items() if place == column]
    return [(key, key in campaign.chunks) for key in keys], rows[0].stage if rows else ""


class LogPage(_Page):
    """`logs/<run>`: the files of a run and of its jobs, and the end of each."""

    root = "../"

    @staticmethod
    def content(campaign: Campaign, *place: str) -> tuple[str, str]:
        """Ends of the run's files, those of its jobs among them."""
        (run,) = place
        folder = next((entry for entry in listed(campaign.store.path / ".runs") if entry.name == run), None)
        if folder is None:
            raise InputError(f"no run {run} in store {campaign.store.path}")
        entries = [*listed(folder.path), *listed(JobList(Path(folder.path)).logs)]
        files = [each for each in entries if each.is_file(follow_symlinks=False) and each.name[0] != "."]
        return f"logs of run {run}", "".join(_end(each) for each in sorted(files, key=lambda each: each.path))


def _end(file: Any) -> str:
    size = file.stat().st_size
    with open(file.path, "rb") as content:
        content.seek(max(0, size - LOG_END))
        text = content.read(LOG_END).decode(errors="replace")
    head = f"{escape(literal(file.name))}, {format_bytes(size)}"
    return f"<details><summary>{head}</summary><pre>{escape(literal_lines(text))}</pre></details>"


def patterns(find: Callable[[], Campaign | None]) -> list[tuple[str, type[RequestHandler], dict[str, Any]]]:
    """Handlers by path below the secret."""
    return [
        (rf"/chunk/([^/]+)/({DIGITS})", ChunkPage, {"find": find}),
        (r"/cell/([^/]+)/([^/]+)/(\d+)", CellPage, {"find": find}),
        (r"/logs/([^/]+)", LogPage, {"find": find}),
    ]
