"""Workflows in rounds: which of them are run, and in what order."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from workflows import rounds
from workflows.rounds import Rounds


@pytest.mark.parametrize(
    ("held", "ran"),
    [
        (set(), ["choice", "campaign"]),
        ({"choice"}, ["campaign"]),
        ({"campaign"}, ["choice", "campaign"]),
        ({"choice", "campaign"}, ["campaign"]),
    ],
)
def test_the_last_round_is_the_last_that_is_run(monkeypatch, held, ran):
    """Also where the store has all of it from a file that began there: results are those of the last run."""

    def planned(workflow: str, store: object, backend: str) -> Any:
        return SimpleNamespace(
            workflow=workflow, everything=(), missing=[] if workflow in held else [workflow]
        )

    def compute(plan: Any) -> Any:
        held.add(plan.workflow)
        done.append(plan.workflow)
        return SimpleNamespace(exit_status=0)

    done: list[str] = []
    monkeypatch.setattr(rounds, "make_plan", planned)
    campaign = SimpleNamespace(workflow="campaign", in_rounds=False, on_next_configuration=lambda: None)
    step = SimpleNamespace(text="chosen", met=True, project=campaign)
    choice: Any = SimpleNamespace(
        workflow="choice", in_rounds=True, step=lambda *_: step, on_next_configuration=lambda: None
    )
    store: Any = None
    driven = Rounds(choice, store, "cpu")
    driven.drive(compute, lambda _: None)
    assert done == ran and driven.project is campaign
