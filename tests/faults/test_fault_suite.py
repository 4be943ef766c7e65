"""Faults of every kind, each judged by an independent check: nothing is lost, wrong or hung.

The long form (`-m faults`) writes its table into docs/faults.md. Every case has a seed, from which all its
faults follow; `-k storm-20261203` does one of them again. QUARKLINE_FAULT_SEED is where seeds begin.
"""

from __future__ import annotations

import errno
import os
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

import company_faults
import damage_faults
import disk_faults
import process_faults
import psutil
import pytest
from fault_campaign import PATIENCE, Campaign
from fault_stages import STEPS
from outcome_table import BAD, OutcomeTable
from verdict import Verdict, judge
from zygote import Started, Zygote

Fault = Callable[[Campaign], str]

SEED = int(os.environ.get("QUARKLINE_FAULT_SEED", "26101"))
MODULES = (process_faults, damage_faults, disk_faults, company_faults)
WANTED = 300
"""Faults that must have struck in the long form."""

PAGE = Path(__file__).parents[2] / "docs" / "faults.md"


def long_form() -> list[tuple[Fault, int]]:
    cases = [(fault, n) for module in MODULES for fault, times in module.CASES.items() for n in range(times)]
    return [(fault, SEED + number) for number, (fault, _) in enumerate(cases)]


LONG = long_form()


@dataclass
class Suite:
    zygote: Zygote
    folder: Path
    table: OutcomeTable = field(default_factory=OutcomeTable)

    def strike(self, fault: Fault, seed: int) -> int:
        """Do one case: returns the number of its faults that struck. Asserts its verdict."""
        campaign = Campaign(self.zygote, self.folder / f"{fault.__name__}-{seed}", random.Random(seed))
        began, verdict = time.monotonic(), Verdict.UNCLEAR
        try:
            refusals = fault(campaign)
            verdict, why = campaign.verdict or judge(campaign, refusals)
        except AssertionError:
            self.table.note(campaign.strikes(), Verdict.UNCLEAR)
            raise
        finally:
            strikes = campaign.strikes()
            campaign.close(keep=verdict in BAD)
        struck = self.table.note(strikes, verdict)
        kinds = sorted({f"{s['kind']} at {s['place']}" for s in strikes})
        print(
            f"{fault.__name__}-{seed}: {struck} faults, {verdict}, {time.monotonic() - began:.1f} s: {kinds}"
        )
        assert verdict not in BAD, f"{verdict} (seed {seed}; {kinds}): {why[:900]} ... {why[-600:]}"
        return struck


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    zygote = Zygote("fault_driver")
    yield Suite(zygote, tmp_path_factory.mktemp("faults"))
    zygote.close()


def named(case: tuple[Fault, int]) -> str:
    return f"{case[0].__name__}-{case[1]}"


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
    for kind in ("flipped bit", "purged file"):
        damage_faults.damage(campaign, "field", "read by the next run", kind)
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
    if suite.table.cases < len(LONG):
        pytest.skip("only the whole long form makes the table")
    table = suite.table
    cores = psutil.cpu_count()
    heading = (
        f"{table.total(*Verdict)} faults that struck, in {table.cases} campaigns of 43 chunks with seeds "
        f"from {SEED}, on {date.today()}, {cores} cores:"
    )
    table.write(PAGE, heading)
    assert table.total(*Verdict) >= WANTED
    assert not table.total(*BAD), "\n".join(table.rows())
