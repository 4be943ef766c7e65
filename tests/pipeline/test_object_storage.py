"""Stores on object storage: in fsspec's memory, and (slow) on a server that speaks S3."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from uuid import uuid4

import fsspec
import numpy as np
import pytest
from stores import demo, digests, filled
from test_merging import damage

from pipeline import InputError, Store, open_result, plan, status, verify
from pipeline.reading.handover import handover
from pipeline.running.event_log import runs
from pipeline.store.errors import DamagedChunkError
from pipeline.store.ledger import Ledger
from pipeline.store.object_store import ObjectStore, store_at, url_in
from pipeline.transfer.bucket import Bucket
from pipeline.transfer.offer import Selection
from pipeline.transfer.push import push
from pipeline.transfer.transfer import pull
from workflows.command import main


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return filled(tmp_path / "here", demo("ab"), run="20261101-000000-aaaa", jobs=["7"])


@pytest.fixture
def url() -> str:
    return f"memory://{uuid4().hex}/store"


def looked_at(store: Store, url: str, folder: Path) -> None:
    """Push a store, read it there, and pull it: everything is what it was."""
    other = filled(folder / "other", demo("bc"), run="20261102-000000-bbbb", jobs=["8"])
    assert push(store, Bucket(url)).brought == 7
    assert push(other, Bucket(url)).brought == 4
    assert push(other, Bucket(url)).present == 7
    for name, array in (("loops", "current"), ("field", "values")):
        there = open_result(url, name)
        assert list(there.config) == ["a", "b", "c"]
        np.testing.assert_array_equal(there[array].sel(config=["a", "b"]), open_result(store, name)[array])
    nodes = {node.node: (node.stored, node.chunks) for node in status(url).nodes}
    assert nodes == {"field": (3, 3), "loops": (6, 6)}
    assert [chunk.node.name for chunk in plan(demo("abc"), store_at(url)).missing] == ["mean"]
    facts = handover(url)
    assert facts.store == url and [job.job for job in facts.jobs] == ["7", "8"] and len(facts.runs) == 2
    back = Store(folder / "back")
    assert pull(Bucket(url), back).brought == 11 and pull(Bucket(url), back).present == 11
    assert digests(back) == {**digests(store), **digests(other)} and verify(back).damaged == ()
    assert len(runs(back)) == 2 and len(list(Ledger(back).entries())) == 2


def test_a_store_goes_there_is_read_and_comes_back(store: Store, url: str, tmp_path: Path) -> None:
    looked_at(store, url, tmp_path)


def test_results_alone_are_enough_to_read_them(store, url, capsys):
    push(store, Bucket(url), Selection(results=lambda manifests: ("mean",)))
    assert ObjectStore(url).stages() == ["loops", "mean"]
    np.testing.assert_array_equal(open_result(url, "mean")["mean"], open_result(store, "mean")["mean"])
    assert main(["status", url]) == 0
    assert f"store {url}: no active run" in capsys.readouterr().out


@pytest.mark.parametrize("stage", ["field", "loops"])
def test_damage_there_is_noticed_when_it_is_read_and_is_not_brought(store, url, tmp_path, stage):
    push(store, Bucket(url))
    key = damage(store, stage)
    fs = fsspec.filesystem("memory")
    bad = store.location(stage, key)
    for file in [bad] if bad.is_file() else [path for path in bad.rglob("*") if path.is_file()]:
        fs.pipe_file(f"{fs._strip_protocol(url)}/{file.relative_to(store.path)}", file.read_bytes())
    with pytest.raises(DamagedChunkError):
        ObjectStore(url).load(stage, key)
    receipt = pull(Bucket(url), Store(tmp_path / "back"))
    assert receipt.brought == 6 and key[:12] in receipt.damaged[0]


def test_a_folder_whose_record_is_not_there_yet_is_no_chunk(store: Store, url: str, tmp_path: Path) -> None:
    push(store, Bucket(url))
    key = min(store.keys("field"))
    place = store.location("field", key).relative_to(store.path)
    fs = fsspec.filesystem("memory")
    fs.rm(f"{fs._strip_protocol(url)}/{place}/zarr.json")
    there = store_at(url)
    assert not there.has("field", key) and key in there.gaps("field", [key])
    with pytest.raises(InputError, match="1 of 2 chunks"):
        open_result(url, "field")
    assert pull(Bucket(url), Store(tmp_path / "back")).brought == 6
    assert push(store, Bucket(url)).brought == 1
    assert open_result(url, "field").sizes["config"] == 2


def test_what_cannot_be_reached_or_written_is_one_message(store, url, tmp_path, monkeypatch):
    assert url_in("s3://bucket/a/") == "s3://bucket/a" == url_in(Path("s3://bucket/a"))
    assert url_in("/data/store") is url_in("store") is None

    assert url_in("s3://bucket/a/") == "s3://bucket/a" == url_in(Path("s3://bucket/a"))
    assert url_in("/data/store") is url_in("store") is None

    with pytest.raises(InputError, match=f"there is no store at {url}"):
        open_result(url, "mean")
    with pytest.raises(InputError, match="there is no store at"):
        pull(Bucket(url), Store(tmp_path / "back"))
    fs = fsspec.filesystem("memory")
    fs.pipe_file(f"{fs._strip_protocol(url)}/quarkline.json", b'{"format": 9}')
    with pytest.raises(InputError, match="has format 9"):
        open_result(url, "mean")
    with pytest.raises(InputError, match="cannot be reached"):
        open_result("nosuch://bucket/store", "mean")
    with pytest.raises(InputError, match="is no folder here"):
        Store("s3://bucket/store")
    monkeypatch.setitem(sys.modules, "upath", None)
    with pytest.raises(InputError, match=r"not installed .*: pip install -e '\.\[s3\]'"):
        open_result(url, "mean")


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A bucket of a server on this machine that speaks S3."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    settings = {
        "AWS_ENDPOINT_URL": address,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, env=dict(os.environ), stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                break
        time.sleep(0.1)
    fsspec.filesystem("s3").mkdir("lattice")
    yield "s3://lattice/stores/g2"
    server.terminate()
    server.wait(10)


@pytest.mark.slow
@pytest.mark.skipif(not (find_spec("s3fs") and find_spec("moto")), reason="needs s3fs and moto[server]")
def test_a_store_on_s3(store: Store, bucket: str, tmp_path: Path) -> None:
    looked_at(store, bucket, tmp_path)
    with pytest.raises(InputError, match="there is no store at s3://lattice/elsewhere"):
        open_result("s3://lattice/elsewhere", "mean")
