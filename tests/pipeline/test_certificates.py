"""Chunks name the certificate of the machine, device and code that computed them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict

import pytest
import toy_stages as toys

from pipeline import Place, Store, Workflow, export_hdf5
from pipeline.reading.account import account, accounts
from pipeline.reading.result import result_to_export
from pipeline.worker.certificate import certificate_id, certificates_folder, certification, subject


@pytest.fixture
def certificate() -> Iterator[str]:
    """Id of a certificate of this machine and code in the cache that the warm workers read, too."""
    content = {"subject": asdict(subject("cpu")), "date": "2026-11-23T22:00:00+00:00", "checks": []}
    identity = certificate_id(content)
    file = certificates_folder() / f"{identity}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"id": identity, **content}))
    yield identity
    file.unlink()


def fields(configs: str) -> Workflow:
    workflow = Workflow("certified")
    workflow.add(toys.field, place=Place(over={"config": list(configs)}))
    return workflow


def records(store: Store) -> list[dict]:
    return [store.record("field", key) for key in store.keys("field")]


def test_workers_name_it_and_exports_show_it(compute, store, certificate, tmp_path):
    assert compute(fields("ab")).exit_status == 0
    assert [record["certificate"] for record in records(store)] == [certificate] * 2
    assert result_to_export(store, "field").attrs["certificate"] == certificate
    assert export_hdf5(store, "field", tmp_path / "field.h5").exists()
    assert certificate[:12] in str(account(store, "certified", accounts(store, "certified"))[-1])


def test_what_is_computed_without_one_says_why(compute, store, certificate):
    """Chunks before and after a certificate is withdrawn: each says what held when it was made."""
    compute(fields("a"))
    withdrawn = certificates_folder() / f"{certificate}.json"
    withdrawn.rename(withdrawn.with_suffix(".withdrawn"))
    try:
        assert "no certificate of this machine" in certification("cpu")["uncertified"]
        compute(fields("ab"))
    finally:
        withdrawn.with_suffix(".withdrawn").rename(withdrawn)
    named = {record["coordinates"]["config"][0]: record["certificate"] for record in records(store)}
    assert named == {"a": certificate, "b": None}
    assert result_to_export(store, "field").attrs["certificate"] == f"{certificate}, none"
