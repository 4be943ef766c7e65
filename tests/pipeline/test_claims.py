"""Locks and claims of drivers that share a store: whose work is whose, and when a claim is void."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from pipeline import InputError, Store
from pipeline.store import claims as claims_module
from pipeline.store import lease
from pipeline.store.claims import Claims, remove_claims
from pipeline.store.lease import Driver, Witness, job_has_ended, no_witness, this_driver
from pipeline.store.lock import alone_for_a_moment, current_drivers, driver_lock, shared_lock

FAR = Driver("elsewhere", 17, "far", "x", "slurm", "4711")


@pytest.fixture
def made(store: Store) -> Store:
    store.create()
    return store


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as entered:
        yield entered


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims_module, "KNOWN", 0.0)


def sharing(stack: ExitStack, store: Store, run: str, witness: Witness = no_witness) -> Claims:
    return stack.enter_context(shared_lock(store, run, witness))


def far_driver(store: Store, piece: str, driver: Driver = FAR) -> Path:
    """Another machine's driver with a claim."""
    drivers = store.path / ".drivers"
    drivers.mkdir(exist_ok=True)
    (drivers / driver.run).write_text(json.dumps(asdict(driver)))
    assert Claims(store, driver.run, drivers, no_witness).take([piece])
    return drivers / driver.run


def test_a_piece_is_of_one_driver_until_that_one_ends(made: Store, stack: ExitStack) -> None:
    first = sharing(stack, made, "first")
    with ExitStack() as inner:
        second = sharing(inner, made, "second")
        assert second.take(["b"]) and second.has("b")
        assert not first.take(["a", "b"])  # and then `a` is not kept from others
        assert second.take(["a"])
        assert [driver.run for driver in first.others()] == ["second"]
        assert [driver.run for driver in current_drivers(made)] == ["first", "second"]
    assert first.take(["a", "b"])
    assert not first.others()


def test_an_empty_claim_counts_while_it_may_be_being_written(made: Store, stack: ExitStack) -> None:
    """Where there are no links its file is there before its text."""
    first, second = sharing(stack, made, "first"), sharing(stack, made, "second")
    assert second.take(["a"])
    (claim,) = (path for path in (made.path / ".claims").iterdir() if path.name[0] != ".")
    claim.unlink()  # it is a link to the text
    claim.touch()
    assert not first.take(["a"])
    os.utime(claim, (1.0, 1.0))
    assert first.take(["a"])


@pytest.mark.parametrize("code", [errno.EPERM, errno.EMLINK])
def test_claims_hold_where_links_are_refused(made, stack, monkeypatch, code):
    real, refused = os.link, 0

    def refusing(source: Any, target: Any) -> None:
        nonlocal refused
        refused += 1
        if code == errno.EPERM or refused % 2:  # the limit on links of a file is gone with a new one
            raise OSError(code, os.strerror(code))
        real(source, target)

    monkeypatch.setattr(os, "link", refusing)
    first, second = sharing(stack, made, "first"), sharing(stack, made, "second")
    assert first.take(["a"])
    assert not second.take(["a"])
    assert refused


def test_a_claim_of_a_job_is_freed_by_the_word_of_its_batch_system_alone(made, stack):
    word: dict[str, bool | None] = {}
    mine = sharing(stack, made, "mine", lambda driver: word["job"] if driver.job == FAR.job else None)
    file = far_driver(made, "a")
    os.utime(file, (1.0, 1.0))  # silent for half a century
    for answer in (None, False):
        word["job"] = answer
        assert not mine.take(["a"])
    word["job"] = True
    assert mine.take(["a"])


def test_a_claim_outside_of_jobs_is_void_once_nobody_renews_it(made: Store, stack: ExitStack) -> None:
    mine = sharing(stack, made, "mine")
    file = far_driver(made, "a", replace(FAR, system="", job=""))
    assert not mine.take(["a"])
    old = time.time() - 2 * lease.STALE
    os.utime(file, (old, old))
    assert mine.take(["a"])


def test_a_job_that_was_requeued_knows_its_former_life_to_be_over(made, stack, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", FAR.job)
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    far_driver(made, "a")
    assert sharing(stack, made, "mine").take(["a"])
    assert not this_driver("mine").is_dead


def test_one_driver_alone_keeps_sharing_ones_out_and_the_other_way_round(made: Store) -> None:
    with driver_lock(made, "alone"), pytest.raises(InputError, match="is driven by run alone"):
        shared_lock(made, "second").__enter__()
    with shared_lock(made, "sharing"), pytest.raises(InputError, match="is driven by run sharing"):
        driver_lock(made, "second").__enter__()
    far_driver(made, "a")
    with pytest.raises(InputError, match=r"is driven by run far .*job 4711.*and it has ended, remove .*far"):
        driver_lock(made, "second").__enter__()
    with driver_lock(made, "second", lambda driver: True):
        pass
    assert not current_drivers(made)


CODE = {"pipeline": "a4" * 32, "stages": "b5" * 32}
EDITED = {**CODE, "stages": "44" * 32}


def test_drivers_of_other_code_do_not_share_a_store(made: Store, stack: ExitStack) -> None:
    """What one has beside the other is no difference; one at work that does not say its code is older."""
    with shared_lock(made, "first", code=CODE):
        with shared_lock(made, "second", code={**CODE, "polyakov": "c"}):
            pass
        said = rf"by run first \(process {os.getpid()} on .*stages b5b5b5b5b5b5 there, 444444444444 here"
        with pytest.raises(InputError, match=said):
            shared_lock(made, "second", code=EDITED).__enter__()
        with pytest.raises(InputError, match="is driven by run first"):
            driver_lock(made, "third").__enter__()
    with shared_lock(made, "second", code=EDITED):  # the other one has ended
        pass
    far_driver(made, "a", replace(FAR, code=CODE))
    with pytest.raises(InputError, match=r"run far .* on elsewhere, job 4711"):
        shared_lock(made, "second", code=EDITED).__enter__()
    with shared_lock(made, "second", lambda driver: True, EDITED):  # its batch system says that it has ended
        pass
    old = far_driver(made, "b", replace(FAR, run="old"))
    with pytest.raises(InputError, match=r"run old .*an older version, which does not say"):
        shared_lock(made, "second", code=CODE).__enter__()
    text = json.loads(old.read_text())
    del text["code"]
    old.write_text(json.dumps({**text, "of_a_later_version": 1}))
    with pytest.raises(InputError, match=r"run old .*an older version, which does not say"):
        shared_lock(made, "second", code=CODE).__enter__()
    assert [path.name for path in (made.path / ".drivers").iterdir()] == ["old"]


@pytest.mark.parametrize("ahead", [-3600.0, 125.0, 3600.0])
def test_who_drives_is_told_by_the_clock_of_the_file_system(made, monkeypatch, ahead):
    file, now = far_driver(made, "a"), time.time
    monkeypatch.setattr(time, "time", lambda: now() + ahead)
    monkeypatch.setattr(lease, "_ahead", {})
    assert [driver.run for driver in current_drivers(made)] == ["far"]
    silent = now() - 2 * lease.STALE - 1.0
    os.utime(file, (silent, silent))
    assert not current_drivers(made)
    os.utime(file)
    assert current_drivers(made)
    assert [path.name for path in file.parent.iterdir()] == ["far"]


def test_housekeeping_is_for_who_is_alone(made: Store, stack: ExitStack) -> None:
    first = sharing(stack, made, "first")
    assert first.take(["a"])
    with alone_for_a_moment(made) as alone:
        assert alone
        with alone_for_a_moment(made) as again:
            assert not again
    sharing(stack, made, "second")
    with alone_for_a_moment(made) as alone:
        assert not alone
    remove_claims(made, "first")
    assert [path.name for path in (made.path / ".claims").glob("*")] == [".first"]


@pytest.mark.parametrize(
    ("output", "error", "code", "ended"),
    [
        ("4711|4711|4711|RUNNING|loops\n", "", 0, False),
        ("4711|4711|4711|COMPLETING|loops\n", "", 0, False),
        ("4711|4711|4711|NODE_FAIL|loops\n", "", 0, True),
        ("", "slurm_load_jobs error: Invalid job id specified\n", 1, True),
        ("", "slurm_load_jobs error: Unable to contact slurm controller\n", 1, None),
    ],
)
def test_the_word_of_slurm(monkeypatch, output, error, code, ended):
    answer = subprocess.CompletedProcess([], code, output, error)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: answer)
    assert job_has_ended(FAR) is ended
    assert job_has_ended(replace(FAR, system="")) is None
    assert job_has_ended(replace(FAR, system="sge")) is None  # of an earlier version


@pytest.mark.parametrize("content", ["", "{", "[]", '{"run": "r"}', "\0" * 40])
def test_a_lease_that_cannot_be_read_counts_until_it_is_silent(made, monkeypatch, content):
    """It may be one that is being written."""
    path = made.path / ".lease"
    path.write_text(content)
    with pytest.raises(lease.HeldError):
        lease.clear(path, no_witness, patience=0.0)
    assert path.read_text() == content
    monkeypatch.setattr(lease, "STALE", 0.2)
    monkeypatch.setattr(lease, "BEAT", 0.02)
    began = time.monotonic()
    with driver_lock(made, "later"):
        assert time.monotonic() - began >= 0.1
