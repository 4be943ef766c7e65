"""Stores over SSH: against a server of this machine's own on a free port, with a key made for the test."""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from stores import demo, digests, filled, tree
from test_merging import damage

from pipeline import InputError, Store, open_result, verify
from pipeline.running.event_log import runs
from pipeline.store import arrival
from pipeline.store.errors import StoreError
from pipeline.store.ledger import Ledger
from pipeline.transfer import transfer as transferring
from pipeline.transfer.host import Host, remote_folder
from pipeline.transfer.offer import Offer, Selection
from pipeline.transfer.push import push
from pipeline.transfer.transfer import pull

SSHD = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (SSHD and shutil.which("rsync")), reason="openssh-server or rsync is missing"),
]


@pytest.fixture(scope="module")
def ssh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The command that connects to a server which ends with the tests."""
    folder = tmp_path_factory.mktemp("sshd")
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    (folder / "authorized").write_bytes((folder / "user.pub").read_bytes())
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    Path("/run/sshd").mkdir(exist_ok=True)
    config = folder / "config"
    config.write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host\nPidFile {folder}/pid\nStrictModes no\n"
        f"AuthorizedKeysFile {folder}/authorized\nUsePAM no\nPermitRootLogin yes\n"
    )
    server = subprocess.Popen([SSHD or "", "-D", "-f", config], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                break
        time.sleep(0.05)
    yield (
        f"ssh -p {port} -i {folder}/user -o UserKnownHostsFile={folder}/known -o StrictHostKeyChecking=no "
        "-o IdentitiesOnly=yes -F none"
    )
    server.send_signal(signal.SIGTERM)
    server.wait(10)


@pytest.fixture
def there(tmp_path: Path) -> Store:
    return filled(tmp_path / "over there", demo("ab"), run="20261101-000000-aaaa", jobs=["7"])


def host(folder: Path, ssh: str) -> Host:
    return Host(f"{getpass.getuser()}@127.0.0.1", str(folder), ssh)


def test_pulled_chunks_are_those_that_were_there(there: Store, tmp_path: Path, ssh: str) -> None:
    here, before = Store(tmp_path / "here"), tree(there.path)
    moved: list[tuple[int, int]] = []
    with host(there.path, ssh) as server:
        receipt = pull(server, here, listener=lambda done, total: moved.append((done, total)))
        again = pull(server, here)
    assert digests(here) == digests(there) and verify(here).damaged == ()
    assert (receipt.brought, again.brought, again.present) == (7, 0, 7)
    assert moved[-1][0] == moved[-1][1] == receipt.nbytes
    assert tree(there.path) == before and not (here.path / arrival.ARRIVALS).exists()
    assert runs(here) == runs(there) and [entry.job for entry in Ledger(here).entries()] == ["7"]
    assert open_result(here, "mean")["mean"].dims == ("time",)


def test_pull_goes_on_after_an_interruption_and_leaves_damage_behind(there, tmp_path, ssh, monkeypatch):
    here, key = Store(tmp_path / "here"), damage(there, "loops")
    monkeypatch.setattr(transferring, "BATCH_CHUNKS", 2)
    bring = Host.bring
    calls: list[int] = []

    def cut(self: Host, offers: list[Offer], folder: Path, came: object) -> dict[str, str]:
        problems = bring(self, offers, folder, came)  # type: ignore[arg-type]
        calls.append(len(offers))
        if len(calls) == 2:
            raise KeyboardInterrupt
        return problems

    monkeypatch.setattr(Host, "bring", cut)
    with host(there.path, ssh) as server, pytest.raises(KeyboardInterrupt):
        pull(server, here)
    come = sum(len(here.keys(stage)) for stage in here.stages())
    assert 1 <= come <= 2 and verify(here).damaged == ()
    with host(there.path, ssh) as server:
        receipt = pull(server, here)
    assert receipt.brought + come == 6 and [key[:12] in problem for problem in receipt.damaged] == [True]
    assert not here.has("loops", key) and verify(here).damaged == ()


def test_parts_are_pulled(there: Store, tmp_path: Path, ssh: str) -> None:
    here = Store(tmp_path / "here")
    with host(there.path, ssh) as server:
        pull(server, here, Selection(results=lambda manifests: ("mean",)))
    assert here.stages() == ["loops", "mean"]


def test_pushed_chunks_are_there_with_plans_and_ledger_and_nothing_is_replaced(there, tmp_path, ssh):
    other = filled(tmp_path / "other", demo("bc"), run="20261102-000000-bbbb", jobs=["8"])
    union, expected = tmp_path / "new" / "store", {**digests(there), **digests(other)}
    with host(union, ssh) as server:
        assert push(there, server).brought == 7
        first = {name: value for name, value in tree(union).items() if name[0] != "."}
        receipt = push(other, server)
        assert push(other, server).brought == 0
    assert (receipt.brought, receipt.present) == (4, 3)
    assert first.items() <= tree(union).items() and not (union / arrival.ARRIVALS).exists()
    assert digests(Store(union)) == expected and verify(union).damaged == ()
    assert list(open_result(union, "loops").config) == ["a", "b", "c"]
    assert [entry.job for entry in Ledger(Store(union)).entries()] == ["7", "8"]
    assert len(runs(Store(union))) == 2


def test_a_damaged_chunk_is_not_pushed_nor_one_that_arrives_otherwise(there, tmp_path, ssh, monkeypatch):
    target, key = tmp_path / "target", damage(there, "field")
    send = Host._move

    def bad_disk(self: Host, places: list[str], here: str, there: str, came: object) -> None:
        send(self, places, here, there, came)  # type: ignore[arg-type]
        for place in (target / arrival.ARRIVALS).rglob("*.zip"):
            place.write_bytes(place.read_bytes()[:-1] + b"!")

    monkeypatch.setattr(Host, "_move", bad_disk)
    with host(target, ssh) as server, pytest.raises(StoreError, match="other bytes than were sent"):
        push(there, server)
    assert Store(target).stages() == []
    monkeypatch.undo()
    with host(target, ssh) as server:
        receipt = push(there, server)
    assert receipt.brought == 6 and key[:12] in receipt.damaged[0]
    assert verify(target).damaged == () and not Store(target).has("field", key)


def test_what_cannot_be_reached_is_one_message(there: Store, tmp_path: Path, ssh: str) -> None:
    here = Store(tmp_path / "here")
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "file").touch()
    (tmp_path / "future").mkdir()
    (tmp_path / "future" / "quarkline.json").write_text('{"format": 9}')
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        closed = ssh.replace("ssh -p ", f"ssh -p {taken.getsockname()[1]} -p ")
        for folder, command, text in [
            (there.path, closed, "no connection to .*refused.*the same command goes on"),
            (there.path, ssh.replace("user ", "host "), "no connection to .*Permission denied"),
            (tmp_path / "nowhere", ssh, "there is no store at"),
            (tmp_path / "foreign", ssh, "is not a quarkline store"),
            (tmp_path / "future", ssh, "has format 9"),
            (there.path, "sssh", "sssh is not installed here"),
        ]:
            with pytest.raises(InputError, match=text), host(folder, command) as server:
                pull(server, here)
    assert not here.exists()
    full = tmp_path / "file"
    full.touch()
    with pytest.raises(StoreError, match="cannot be read or written"), host(full / "store", ssh) as server:
        push(there, server)


def test_places_on_other_machines() -> None:
    assert remote_folder("me@host.org:/data/store") == ("me@host.org", "/data/store")
    assert remote_folder("host:store") == ("host", "store")
    assert remote_folder("/data/a:b") is None and remote_folder("store") is None
    for text in ("host:", "-oProxyCommand=x:/store"):
        with pytest.raises(InputError, match="user@host:/folder/of/store"):
            remote_folder(text)
