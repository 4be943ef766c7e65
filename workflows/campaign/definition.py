"""A campaign as it was submitted, `<store>/.campaigns/<name>/campaign.json`: what each of its jobs reads."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pydantic import TypeAdapter

from pipeline.batch import KINDS, BatchSystem, batch_system
from pipeline.running.clusters.section import ClusterSection
from pipeline.store.durable import write_atomically
from pipeline.store.ledger import Ledger, LedgerEvent
from pipeline.store.plain_files import content_of
from pipeline.store.store import Store
from stages.base.errors import InputError

FILE = "campaign.json"


@dataclass(frozen=True)
class Budget:
    """Limits of a campaign, of all its jobs together; None: no limit."""

    node_hours: float | None = None
    joules: float | None = None


@dataclass(frozen=True)
class Campaign:
    """Jobs that compute a workflow into a store.

    Each holds a driver and its workers, and is followed by one more until nothing is missing: a chain.

    Args:
        name: of the campaign and its jobs.
        workflow: its file.
        store: where results go.
        folder: in which jobs run; paths in the workflow file may be relative to it.
        site: the batch system, and what each node of a job has.
        nodes: of each job.
        chains: jobs at a time.
        walltime: seconds of a job.
        budget: beyond which no job is submitted.
        check: share of the chunks that are repeated in part, the usual one unless given.
        changes: values of keys of the workflow file, `KEY=VALUE`.
    """

    name: str
    workflow: Path
    store: Path
    folder: Path
    site: ClusterSection
    nodes: int
    chains: int
    walltime: int
    budget: Budget
    check: float | None = None
    changes: tuple[str, ...] = ()

    @property
    def place(self) -> Path:
        """Folder of the campaign's own files."""
        return place_of(Store(self.store), self.name)

    @cached_property
    def system(self) -> BatchSystem:
        """The batch system that its jobs are of."""
        return batch_system(self.site.kind)

    def write(self) -> None:
        """Keep it in its store."""
        store = Store(self.store)
        with store.writing("the campaign"):
            self.place.mkdir(parents=True, exist_ok=True)
            write_atomically(self.place / FILE, _ADAPTER.dump_json(self, indent=2).decode())

    def note_submitted(self, job: str, chain: int, after: str | None) -> None:
        """Write a job down in the ledger; after: the job that it follows."""
        Ledger(Store(self.store)).add(
            LedgerEvent.SUBMITTED,
            campaign=self.name,
            job=job,
            chain=chain,
            after=after,
            name=self.name,
            nodes=self.nodes,
            walltime=self.walltime,
            memory=self.site.memory,
        )


_ADAPTER = TypeAdapter(Campaign)


def label_of(workflow: str) -> str:
    """Beginning of the names of a workflow's campaigns, up to the last hyphen."""
    return f"quarkline-{re.sub(r'[^A-Za-z0-9_-]+', '-', workflow)}"


def place_of(store: Store, name: str) -> Path:
    """Folder of a campaign's own files."""
    return store.inside(".campaigns", name)


def read_campaign(place: Path) -> Campaign:
    """The campaign of a folder.

    Raises:
        InputError: there is none, or it was written by another version.
    """
    try:
        return _ADAPTER.validate_json(content_of(place / FILE))
    except FileNotFoundError:
        raise InputError(f"{place} is no campaign of `quarkline submit`") from None
    except (OSError, ValueError) as error:
        raise InputError(
            f"{place / FILE} is damaged, not readable, or of another version: submit again ({error})"
        ) from None


def campaigns(store: Store) -> list[Campaign]:
    """All campaigns of a store, by name, but those of batch systems that are not known any more."""
    files = sorted((store.path / ".campaigns").glob(f"*/{FILE}"))
    return [each for each in map(read_campaign, (file.parent for file in files)) if each.site.kind in KINDS]
