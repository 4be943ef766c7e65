"""The pages: which panels are on each, and how a page follows its store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from html import escape
from typing import Any, Protocol

from bokeh.core.templates import FILE
from bokeh.document import without_document_lock
from bokeh.layouts import column, row
from bokeh.models import Div

from pipeline.reading.dashboard.facts.campaign import Campaign
from pipeline.reading.dashboard.panels.failures import FailureList
from pipeline.reading.dashboard.panels.gpus import Gpus
from pipeline.reading.dashboard.panels.headline import Headline
from pipeline.reading.dashboard.panels.history import History
from pipeline.reading.dashboard.panels.jobs import Jobs
from pipeline.reading.dashboard.panels.multigrid import Setups
from pipeline.reading.dashboard.panels.overview import Overview
from pipeline.reading.dashboard.panels.power import Power
from pipeline.reading.dashboard.panels.residuals import Eigensolves, Residuals
from pipeline.reading.dashboard.panels.resources import Resources
from pipeline.reading.dashboard.panels.throughput import Throughput
from pipeline.reading.dashboard.panels.trace_error import TraceError
from pipeline.reading.dashboard.panels.workers import Workers
from pipeline.reading.dashboard.theme import STYLE, theming
from stages.base.errors import InputError

LOOK = 150
"""Milliseconds between two looks at the store."""

SHOW = 70
"""Milliseconds between two panels that are drawn anew: never several in one frame of the browser."""


class Panel(Protocol):
    """A part of a page."""

    root: Any

    @staticmethod
    def read(campaign: Campaign) -> Any:
        """Facts to show, as plain data; called in another thread than `show`."""

    def show(self, facts: Any) -> None:
        """Show it."""


@dataclass(frozen=True)
class Page:
    """A page: its address below the secret, its name, and its panels in rows."""

    address: str
    name: str
    rows: Sequence[Sequence[Callable[[], Panel]]]


PAGES = (
    Page("quarkline", "campaign", [[Headline], [Overview], [Throughput, FailureList]]),
    Page("quarkline-solves", "solves", [[Residuals, TraceError], [Eigensolves, Setups]]),
    Page("quarkline-resources", "resources", [[Resources], [Gpus], [Power]]),
    Page("quarkline-jobs", "jobs and runs", [[Jobs], [Workers], [History]]),
)

LINKS = "".join(f'<a href="{page.address}">{page.name}</a>' for page in PAGES)

TEMPLATE = FILE.environment.from_string(
    f"""{{% extends base %}}
{{% block preamble %}}<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark"><style>{STYLE}</style>{{% endblock %}}
{{% block contents %}}<nav><b>quarkline</b>{LINKS}</nav>{{{{ super() }}}}{{% endblock %}}
"""
)


Find = Callable[[], Campaign | None]
"""The campaign that a page is to show: None before there is one; InputError where its store is away."""


def routes(find: Find) -> Mapping[str, Callable[[Any], None]]:
    """Functions that fill a Bokeh document, by path."""
    return {f"/{page.address}": partial(fill, page, find) for page in PAGES}


def fill(page: Page, find: Find, document: Any) -> None:
    """Fill a document with a page, and keep it up to date.

    The store is read in another thread. Panels whose facts changed are drawn anew one by one.
    """
    rows = [[make() for make in panels] for panels in page.rows]
    panels = [panel for each in rows for panel in each]
    notice = Div(text="<p>reading the store</p>", sizing_mode="stretch_width")
    wrapping = {"flex-wrap": "wrap"}  # on a phone below each other
    layout = [row(*(p.root for p in each), sizing_mode="stretch_width", styles=wrapping) for each in rows]
    follower = Follower(panels, notice, find)
    document.title, document.template = f"quarkline: {page.name}", TEMPLATE
    document.add_root(column(notice, *layout, sizing_mode="stretch_width"))
    theming(document)
    document.add_periodic_callback(without_document_lock(follower.look), LOOK)
    document.add_periodic_callback(follower.show_next, SHOW)


class Follower:
    """Brings panels up to date, one at a time."""

    def __init__(self, panels: Sequence[Panel], notice: Div, find: Find) -> None:
        self._panels, self._notice, self._find = panels, notice, find
        self._facts: list[Any] = [None] * len(panels)
        self._shown: list[Any] = [None] * len(panels)
        self._message = notice.text
        self._next = 0

    async def look(self) -> None:
        """Read the store, unless there is none."""
        try:
            if campaign := self._find():
                reads = [panel.read for panel in self._panels]
                self._facts = await asyncio.to_thread(campaign.look, reads)
                self._message = ""
            else:
                self._message = "<p>no run has begun</p>"
        except InputError as error:
            self._message = f"<p>{escape(str(error))}</p>"
        except asyncio.CancelledError:  # the run has ended, and this server with it
            return
        except Exception as error:
            self._fail(error)

    def show_next(self) -> None:
        """Draw the next panel whose facts are other ones than those that it shows."""
        if self._notice.text != self._message:
            self._notice.text, self._notice.visible = self._message, bool(self._message)
        for k in range(len(self._panels)):
            number = (self._next + k) % len(self._panels)
            facts = self._facts[number]
            if facts is not None and facts != self._shown[number]:
                self._shown[number], self._next = facts, number + 1
                try:
                    self._panels[number].show(facts)
                except Exception as error:
                    self._fail(error)
                return

    def _fail(self, error: Exception) -> None:
        """Say on the page what is wrong with it: the run, whose terminal this is, goes on."""
        self._message = f"<p>a part of this page fails: {escape(f'{type(error).__name__}: {error}')}</p>"
