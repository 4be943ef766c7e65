"""The pages: which panels are on each, how a page follows its store, and all of them as a web application."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from html import escape
from typing import Any

from bokeh.application import Application
from bokeh.application.handlers.function import FunctionHandler
from bokeh.core.templates import FILE
from bokeh.document import Document, without_document_lock
from bokeh.layouts import column, row
from bokeh.models import Div
from bokeh.server.tornado import BokehTornado
from tornado.ioloop import IOLoop

from pipeline.reading.dashboard.chunk_page import patterns
from pipeline.reading.dashboard.facts.campaign import Campaign, campaign_of
from pipeline.reading.dashboard.look import STYLE, theming
from pipeline.reading.dashboard.panel import Addition, Page, text
from pipeline.reading.dashboard.panels.campaign import failures, headline
from pipeline.reading.dashboard.panels.jobs import history, jobs, workers
from pipeline.reading.dashboard.panels.over_time import POWER, THROUGHPUT
from pipeline.reading.dashboard.panels.overview import OVERVIEW
from pipeline.reading.dashboard.panels.resources import gpus, resources
from pipeline.store.store import Store
from stages.base.errors import InputError

LOOK = 150
"""Milliseconds between two looks at the store."""

SHOW = 70
"""Milliseconds between two panels that are drawn anew: never several in one frame of the browser."""

KEEP_ALIVE = 37_000
"""Milliseconds between signs of life of a connection."""

TEMPLATE = """{% extends base %}
{% block preamble %}<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark"><link rel="icon" href="data:,">
<style>{{ style }}</style>{% endblock %}
{% block contents %}<nav><b>quarkline</b>
{%- for page in pages %}<a href="{{ page.address }}">{{ page.name }}</a>{% endfor %}</nav>
{{ super() }}{% endblock %}
"""


def application(token: str, store: Store, additions: Iterable[Addition] = ()) -> BokehTornado:
    """All pages of a store, below a secret, in this thread's event loop.

    Websockets may come from any origin: a tunnel gives other ports, and the path holds the secret.
    """
    addition = Addition.of_all(additions)
    campaign, pages = campaign_of(store.path, addition.facts), pages_with(addition)
    fillings = {page.address: FunctionHandler(partial(fill, page, pages, campaign)) for page in pages}
    served = BokehTornado(
        {f"/{address}": Application(filling) for address, filling in fillings.items()},
        prefix=f"/{token}/",
        extra_patterns=patterns(campaign),
        extra_websocket_origins=["*"],
        use_index=False,
        keep_alive_milliseconds=KEEP_ALIVE,
    )
    served.initialize(IOLoop.current())
    return served


def pages_with(addition: Addition) -> tuple[Page, ...]:
    """All pages: the engine's, and those that workflows add."""
    nodes = partial(resources, addition)
    return (
        Page("quarkline", "campaign", ((text(headline),), (OVERVIEW,), (THROUGHPUT, text(failures)))),
        *addition.pages,
        Page("quarkline-resources", "resources", ((text(nodes),), (text(gpus),), (POWER,))),
        Page("quarkline-jobs", "jobs and runs", ((text(jobs),), (text(workers),), (text(history),))),
    )


def fill(page: Page, pages: Sequence[Page], campaign: Campaign, document: Document) -> None:
    """Fill a document with a page, and keep it up to date.

    The store is read in another thread. Panels whose facts changed are drawn anew one by one.
    """
    follower = Follower(campaign, page)
    document.title = f"quarkline: {page.name}"
    document.template = FILE.environment.from_string(TEMPLATE)
    document.template_variables.update(pages=pages, style=STYLE)
    document.add_root(follower.root)
    theming(document)
    document.add_periodic_callback(without_document_lock(follower.look), LOOK)
    document.add_periodic_callback(follower.show_next, SHOW)


class Follower:
    """Brings the panels of an open page up to date, one at a time."""

    def __init__(self, campaign: Campaign, page: Page) -> None:
        self._campaign = campaign
        self._reads = [panel.read for panels in page.rows for panel in panels]
        drawings = [[panel.draw() for panel in panels] for panels in page.rows]
        self._shows: list[Callable[[Any], None]] = [show for each in drawings for _, show in each]
        self._facts: list[Any] = [None] * len(self._reads)
        self._shown: list[Any] = [None] * len(self._reads)
        self._next = 0
        self._message = "<p>reading the store</p>"
        self.notice = Div(text=self._message, sizing_mode="stretch_width")
        wrapping = {"flex-wrap": "wrap"}  # on a phone below each other
        rows = (
            row(*(root for root, _ in each), sizing_mode="stretch_width", styles=wrapping)
            for each in drawings
        )
        self.root = column(self.notice, *rows, sizing_mode="stretch_width")

    async def look(self) -> None:
        """Read the store."""
        try:
            self._facts = await asyncio.to_thread(self._campaign.look, self._reads)
            self._message = ""
        except InputError as error:
            self._message = f"<p>{escape(str(error))}</p>"
        except asyncio.CancelledError:  # the run has ended, and this server with it
            return
        except Exception as error:
            self._fail(error)

    def show_next(self) -> None:
        """Draw the next panel whose facts are other ones than those that it shows."""
        if self.notice.text != self._message:
            self.notice.text, self.notice.visible = self._message, bool(self._message)
        for k in range(len(self._shows)):
            number = (self._next + k) % len(self._shows)
            facts = self._facts[number]
            if facts is not None and facts != self._shown[number]:
                self._shown[number], self._next = facts, number + 1
                try:
                    self._shows[number](facts)
                except Exception as error:
                    self._fail(error)
                return

    def _fail(self, error: Exception) -> None:
        """Say on the page what is wrong with it: the run, whose terminal this is, goes on."""
        self._message = f"<p>a part of this page fails: {escape(f'{type(error).__name__}: {error}')}</p>"
