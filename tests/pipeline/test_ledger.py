"""The ledger of a campaign: append-only, shared by drivers, cut lines skipped."""

from pathlib import Path

from pipeline.store.ledger import Ledger, LedgerEvent
from pipeline.store.store import Store


def test_entries_are_appended_and_a_line_that_was_cut_off_is_skipped(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    store.create()
    ledger = Ledger(store)
    assert list(ledger.entries()) == []
    ledger.add(LedgerEvent.SUBMITTED, job="7", chain=1)
    with open(ledger.path, "a") as file:
        file.write('{"format": 1, "time": 3.0, "ev\n')
    ledger.add(LedgerEvent.ENDED, job="7", chain=1, joules=None)
    first, second = ledger.entries()
    assert (first["event"], first["job"], first["format"]) == ("submitted", "7", 1)
    assert second["joules"] is None and second["time"] >= first["time"]
