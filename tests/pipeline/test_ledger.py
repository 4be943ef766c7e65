"""The ledger of a campaign: append-only, shared by drivers, cut lines skipped."""

import os

import pytest

from pipeline.store.ledger import Ledger, LedgerEvent
from pipeline.store.store import Store
from stages.base.errors import InputError


def test_entries_are_appended_and_a_line_that_was_cut_off_is_skipped(store: Store) -> None:
    store.create()
    ledger = Ledger(store)
    assert list(ledger.entries()) == []
    ledger.add(LedgerEvent.SUBMITTED, job="7", chain=1)
    with open(ledger.path, "a") as file:
        file.write('{"format": 1, "time": 3.0, "ev\n')
    ledger.add(LedgerEvent.ENDED, job="7", chain=1, joules=None)
    first, second = ledger.entries()
    assert (first.event, first.job, next(ledger.contents())["format"]) == ("submitted", "7", 1)
    assert second.joules is None and second.time >= first.time  # type: ignore[operator]


def test_an_entry_after_one_that_was_torn_is_not_lost_with_it(store: Store) -> None:
    """A driver that died while it wrote, or a disk that was full, left a line without its end."""
    store.create()
    ledger = Ledger(store)
    ledger.path.write_bytes(b'\xff\xfe\n{"event": "began", "jo')
    ledger.add(LedgerEvent.BEGAN, job="8", chain=1)
    (entry,) = ledger.entries()
    assert entry.job == "8"
    with open(ledger.path, "ab") as file:
        file.write(
            b"\0" * 100 + b"\n" + b"[" * 100_000 + b"\n" + b'{"event": "ended", "job": "8", "seconds": NaN}'
        )
    ledger.add(LedgerEvent.ENDED, job="8", chain=1)
    assert [entry.event for entry in ledger.entries()] == ["began", "ended", "ended"]
    (job,) = ledger.state().jobs
    assert job.seconds is None and job.state == "ended"


def test_a_ledger_that_is_no_file_is_named(store: Store) -> None:
    store.create()
    os.mkfifo(store.path / ".ledger.jsonl")
    with pytest.raises(InputError, match=r"ledger .*\.ledger\.jsonl cannot be read .*is no file.: mend it"):
        list(Ledger(store).entries())
