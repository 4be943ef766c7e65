"""Panels, pages, and what a workflow adds to them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from bokeh.models import LayoutDOM

from pipeline.reading.dashboard.facts.campaign import Campaign
from pipeline.reading.dashboard.facts.own import OwnFacts
from pipeline.reading.dashboard.facts.records import Figures
from pipeline.reading.dashboard.look import Columns, html, html_of
from pipeline.reading.report import Section

Facts = TypeVar("Facts")

Drawing = tuple[LayoutDOM, Callable[[Facts], None]]
"""A model of Bokeh, and the function that shows facts in it."""


@dataclass(frozen=True)
class Panel(Generic[Facts]):
    """A part of a page.

    Args:
        read: facts to show, as plain data; called in another thread than what is drawn.
        draw: makes the panel of one open page.
    """

    read: Callable[[Campaign], Facts]
    draw: Callable[[], Drawing[Facts]]


def text(section: Callable[[Campaign], Section]) -> Panel[str]:
    """A panel of text, tables, tiles and folds."""
    return Panel(lambda campaign: html_of(section(campaign)), _draw_text)


def _draw_text() -> Drawing[str]:
    root = html()
    return root, partial(setattr, root, "text")


@dataclass(frozen=True)
class Page:
    """A page: its address below the secret, its name, and its panels in rows."""

    address: str
    name: str
    rows: tuple[tuple[Panel[Any], ...], ...]


class NodeFigures(NamedTuple):
    """A node in the table of nodes."""

    name: str
    figures: Figures
    campaign: Campaign


@dataclass(frozen=True)
class Addition:
    """Addition of a workflow to the dashboard: facts of its own, pages that show them, columns of nodes.

    notes: sentences on these columns.
    """

    facts: tuple[type[OwnFacts], ...] = ()
    pages: tuple[Page, ...] = ()
    columns: Columns[NodeFigures] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @staticmethod
    def of_all(additions: Iterable[Addition]) -> Addition:
        """Additions of several workflows in one; pages of one address are one, with the panels of all."""
        several, pages = list(additions), dict[str, Page]()
        for page in (page for each in several for page in each.pages):
            known = pages.setdefault(page.address, page)
            pages[page.address] = replace(known, rows=tuple(dict.fromkeys((*known.rows, *page.rows))))
        facts = dict.fromkeys(kind for each in several for kind in each.facts)
        notes = dict.fromkeys(note for each in several for note in each.notes)
        columns = {head: value for each in several for head, value in each.columns.items()}
        return Addition(tuple(facts), tuple(pages.values()), columns, tuple(notes))
