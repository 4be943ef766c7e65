"""Who may talk to a run's scheduler and workers: those with its certificates."""

from __future__ import annotations

import asyncio
import http.client
import logging
import os
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
import toy_stages as toys
from distributed import Client
from distributed.core import rpc
from psutil import Process
from tornado.web import Application

from pipeline import InputError, Place, Store, Workflow, plan, run
from pipeline.reading.dashboard.door import Door
from pipeline.reading.dashboard.watcher import Dashboard
from pipeline.running.clusters import Demand
from pipeline.running.clusters.jobqueue import JobQueue
from pipeline.running.clusters.local import Local
from pipeline.running.clusters.section import ClusterSection


async def answer(address: str) -> object:
    """What a stranger gets who asks for the identity of what listens there.

    Not by a Client: one that fails to connect closes itself when it is collected, which waits for ever
    where that happens while the next one starts its event loop.
    """
    async with rpc(address, timeout=1) as stranger:
        return await asyncio.wait_for(stranger.identity(), 2)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    store = Store(tmp_path_factory.mktemp("watched") / "store")
    store.create()
    with Local(workers=1).open(Demand(1, 0, pages=lambda: Dashboard()(store))) as client:
        yield client


def status_of(port: int, path: str, **headers: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request("GET", path, headers=headers)
        return connection.getresponse().status
    finally:
        connection.close()


def dashboard_of(client: Client) -> tuple[int, str]:
    address, token, page = client.dashboard_link.removeprefix("http://").split("/")
    assert page == "quarkline"
    assert address.startswith("127.0.0.1:")
    return int(address.rpartition(":")[2]), token


def as_somebody_else(act: Callable[[], object]) -> str:
    """What an action leads to under another account of this machine: the name of its error, or nothing."""
    if os.geteuid() != 0:
        pytest.skip("only root can act under another account")
    theirs, ours = os.pipe()
    if not (child := os.fork()):
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            act()
        except BaseException as error:
            os.write(ours, type(error).__name__.encode())
        finally:
            os._exit(0)
    os.close(ours)
    with open(theirs) as answer:
        text = answer.read()
    os.waitpid(child, 0)
    return text


def test_strangers_reach_neither_scheduler_nor_workers(client: Client) -> None:
    scheduler = client.scheduler.address
    (worker,) = client.scheduler_info()["workers"]
    for address in (scheduler, worker):
        assert address.startswith("tls://127.0.0.1:")
        with pytest.raises((TypeError, RuntimeError)):  # no certificate to show
            asyncio.run(answer(address))
        with pytest.raises(OSError):  # not in clear text either
            asyncio.run(answer(address.replace("tls", "tcp")))
    assert client.submit(sum, [1, 2]).result() == 3

    (info,) = client.scheduler_info()["workers"].values()
    port = info["services"]["dashboard"]
    assert [status_of(port, path) for path in ("/", "/metrics", "/health", "/info")] == [404] * 4


def test_another_account_is_refused(client: Client) -> None:
    """TLS 1.3 tells who comes without a certificate when he reads, not when he connects."""
    (worker,) = client.scheduler_info()["workers"]
    for address in (client.scheduler.address, worker):
        port = int(address.rpartition(":")[2])

        def knock(port: int = port) -> None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            plain = socket.create_connection(("127.0.0.1", port), 10)
            with plain, context.wrap_socket(plain) as encrypted:
                assert encrypted.read(1)

        assert as_somebody_else(knock) in ("SSLError", "ConnectionResetError", "SSLEOFError")

    port, _ = dashboard_of(client)

    def look() -> None:
        assert status_of(port, "/status") != 403

    assert as_somebody_else(look) == "AssertionError"


def test_every_page_of_the_dashboard_asks_for_the_secret(client: Client) -> None:
    port, token = dashboard_of(client)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request("GET", f"/{token}/status")
    assert connection.getresponse().status == 200
    routes = client.run_on_scheduler(_routes)
    assert {"/status", "/quarkline", "/individual-progress", "/status/ws"} <= set(routes)
    assert any(route.startswith("/info") for route in routes)
    assert any(route.startswith("/metrics") for route in routes)
    others = ["/", "//", "", "/sitemap.json", "/json/counts.json"]
    others += [f"/{token[:-1]}/status", f"/x/../{token}/status"]
    for path in [*routes, *others, f"/?token={token}"]:
        assert status_of(port, path or "*") in (400, 403), path
    websocket = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13"}
    for path in ("/status/ws", "/quarkline/ws"):
        assert status_of(port, path, **websocket, **{"Sec-WebSocket-Key": "MDEyMzQ1Njc4OWFiY2RlZg=="}) == 403
    known = ("/quarkline", "/info/main/workers.html", "/metrics", "/json/counts.json", "/individual-progress")
    for path in known:
        assert status_of(port, f"/{token}{path}") == 200, path


def _routes(dask_scheduler: object) -> list[str]:
    """All paths that the scheduler's web server knows, as they would be without the secret."""
    application = dask_scheduler.http_application  # type: ignore[attr-defined]
    found = []
    for each in (application, *application.applications):
        for rule in (*each.default_router.rules, *each.wildcard_router.rules):
            inner = getattr(rule.target, "rules", [rule])
            found += [one.matcher.regex.pattern for one in inner if hasattr(one.matcher, "regex")]
    return ["/" + path.strip("/$?").partition("/")[2] for path in found]


def test_a_port_that_is_taken_is_named_before_workers_start(store: Store) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        refused = pytest.raises(InputError, match=f"cannot listen on port {port} of 127.0.0.1 .*in use")
        w = Workflow("w")
        w.add(toys.field, place=Place(over={"config": ["a"]}))
        with refused:
            run(plan(w, store), store, cluster=Local(workers=1), watcher=Dashboard(port))


def test_the_secret_of_the_dashboard_is_in_no_file_that_others_read(store, capfd):
    """Neither while the run goes on, nor what its processes were called with, nor what a failed page logs.
    With it the page is served.
    """
    w, kept, seen = Workflow("w"), list[Path](), list[str]()
    w.add(toys.field, place=Place(over={"config": ["a"]}))

    def listen(heard: dict[str, Any]) -> None:
        if heard["event"] != "cluster-ready":
            return
        secret = heard["dashboard"].split("/")[3]
        page = urlopen(heard["dashboard"], timeout=20).read().decode()
        assert "<title>quarkline: campaign</title>" in page and '<meta name="viewport"' in page
        with pytest.raises(HTTPError):
            urlopen(heard["dashboard"].replace("quarkline", "logs/none"), timeout=20)
        files = [file for file in store.path.rglob("*") if file.is_file()]
        kept.extend(file for file in files if secret.encode() in file.read_bytes())
        calls = (Path(f"/proc/{child.pid}/cmdline").read_text() for child in Process().children(True))
        seen.extend([secret, str(kept[0].stat().st_mode & 0o777), *calls])

    run(plan(w, store), store, cluster=Local(workers=1), listener=listen)
    (file,), (secret, mode, *calls) = kept, seen  # empty where the page was not served
    assert file.name == ".dashboard" and mode == str(0o600) and not file.exists()
    assert not any(secret in text for text in (*calls, *capfd.readouterr()))
    assert not any(secret.encode() in each.read_bytes() for each in store.path.rglob("*") if each.is_file())


def test_what_a_web_server_logs_has_no_secret_and_jobs_get_certificates(monkeypatch):
    logger, logged = logging.getLogger("tornado.access"), list[str]()
    monkeypatch.setattr(logger, "callHandlers", lambda record: logged.append(record.getMessage()))
    with closing(Door(0, lambda token: Application())) as door:
        logger.critical("%d GET /%s/x", 404, door.token)
    assert logged == ["404 GET /.../x"]

    options = JobQueue(ClusterSection(kind="slurm", cores=1, memory="1GB")).options()
    assert options["security"] is True
    assert options["scheduler_options"]["dashboard_address"].startswith("127.0.0.1")
