"""Faults of every kind, each judged by an independent check: nothing is lost, wrong or hung.

The long form (`-m faults`) writes its table into docs/notes/faults.md. Every case has a seed, from which all
its faults follow; `-k storm-20261203` does one of them again. QUARKLINE_FAULT_SEED is where seeds begin.
"""

from __future__ import annotations

import errno
import os
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import clock_faults
import cluster_faults
import company_faults
import damage_faults
import disk_faults
import mount_faults
import process_faults
import pytest
from fault_campaign import PATIENCE, Campaign
from fault_stages import STEPS
from outcome_table import BAD, OutcomeTable, Record
from verdict import Verdict, judge
from zygote import Started, Zygote

from pipeline import Store, verify

Fault = Callable[[Campaign], str]

SEED = int(os.environ.get("QUARKLINE_FAULT_SEED", "26101"))
MODULES = (
    process_faults,
    cluster_faults,
    damage_faults,
    disk_faults,
    mount_faults,
    company_faults,
    clock_faults,
)
WANTED = 300
"""Faults that must have struck in the long form."""

PAGE = Path(__file__).parents[2] / "docs" / "notes" / "faults.md"


RECORD = os.environ.get("QUARKLINE_FAULT_RECORD", "")
"""A file that keeps outcomes where the long form is done in parts."""

Case = tuple[Fault, int]


def long_form() -> list[Case]:
    return [(fault, SEED + n) for m in MODULES for fault, times in m.CASES.items() for n in range(times)]


def named(case: Case) -> str:
    fault, seed = case
    return f"{fault.__module__.removesuffix('_faults')}-{fault.__name__}-{seed}"


LONG = long_form()


@dataclass(frozen=True)
class Suite:
    zygote: Zygote
    folder: Path
    record: Record

    def strike(self, fault: Fault, seed: int) -> int:
        """Do one case: returns the number of its faults that struck. Asserts its verdict."""
        name = named((fault, seed))
        campaign = Campaign(self.zygote, self.folder / name, random.Random(name))
        began, verdict, strikes = time.monotonic(), Verdict.UNCLEAR, list[dict[str, Any]]()
        try:
            refusals = fault(campaign)
            verdict, why = campaign.verdict or judge(campaign, refusals)
        finally:
            strikes = campaign.strikes()
            campaign.close(keep=verdict in BAD)
            struck = self.record.note(name, strikes, verdict)
        kinds = sorted({f"{s['kind']} at {s['place']}" for s in strikes})
        print(f"{name}: {struck} faults, {verdict}, {time.monotonic() - began:.1f} s: {kinds}", flush=True)
        assert verdict not in BAD, f"{verdict} (seed {seed}; {kinds}): {why[:900]} ... {why[-600:]}"
        return struck


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    zygote, folder = Zygote("fault_driver"), tmp_path_factory.mktemp("faults")
    yield Suite(zygote, folder, Record(Path(RECORD or folder / "record.jsonl")))
    zygote.close()


def several(campaign: Campaign) -> str:
    """A worker dies in a commit, a read fails once, a second driver comes, the first is killed, chunks are
    damaged: all before the command is run again, which goes on from the checkpoint of the long stage.
    """
    campaign.order("SIGKILL of a worker", "kill", "commit", after=3)
    campaign.order("I/O error (EIO)", "error", "read", code=errno.EIO, after=2)
    second = campaign.order("second driver", "wait", "compute", match="steps-x", after=STEPS - 8)
    campaign.order(
        "SIGKILL of the driver", "kill", "compute", match="steps-x", after=STEPS - 4, target="driver"
    )
    refused: list[Started] = []

    def refuse() -> None:
        refused.append(campaign.start())
        assert refused[0].wait(PATIENCE) == 2

    campaign.run(disk_faults.once_struck(campaign, second, refuse))
    assert "is driven by run" in refused[0].errors.read_text()
    assert list(campaign.store.glob(".checkpoints/*/*/state-*"))
    damage_faults.damage(campaign, "field", "in an incomplete store", "flipped bit")
    assert verify(Store(campaign.store), remove=True).damaged  # what is left to compute may not read it
    damage_faults.damage(campaign, "field", "read by the next run", "purged file")
    return ""


def test_short_form(suite: Suite) -> None:
    assert suite.strike(several, 7) == 6


@pytest.mark.faults
@pytest.mark.timeout(900)
@pytest.mark.parametrize("case", LONG, ids=named)
def test_long_form(suite: Suite, case: tuple[Fault, int]) -> None:
    suite.strike(*case)


@pytest.mark.faults
def test_the_table_says_that_nothing_is_lost_wrong_or_hung(suite: Suite) -> None:
    """The page's table is that of the whole long form."""
    cases = suite.record.cases()
    if lacking := {named(case) for case in LONG} - cases.keys():
        pytest.skip(f"{len(lacking)} cases were not done")
    table = OutcomeTable(cases[named(case)] for case in LONG)
    heading = (
        f"{table.total(*Verdict)} faults that struck, in {len(LONG)} campaigns with seeds from {SEED}, on "
        f"{date.today()}:"
    )
    table.write(PAGE, heading)
    assert table.total(*Verdict) >= WANTED
    assert not table.total(*BAD), "\n".join(table.rows())
