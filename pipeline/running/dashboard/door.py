"""The web server of a run's dashboard: all pages stand below a secret path, all else is refused."""

from __future__ import annotations

import secrets
import socket
from functools import partial
from typing import Any

import dask
from tornado.httpserver import HTTPServer
from tornado.httputil import HTTPMessageDelegate, HTTPServerRequest
from tornado.routing import Router
from tornado.web import Application, ErrorHandler

from stages.base.errors import InputError

HOST = "127.0.0.1"

LINK = "distributed.dashboard.link"
ROUTES = "distributed.scheduler.http.routes"
WORKER_ROUTES = "distributed.worker.http.routes"


class Dashboard:
    """A port of this machine alone, taken at once, and the secret that whoever asks there must show.

    Args:
        port: where it listens on 127.0.0.1; any free one by default.

    Raises:
        InputError: the port is taken or not allowed.
    """

    def __init__(self, port: int = 0) -> None:
        self._door = _listening(port)
        self._routes = dask.config.get(ROUTES, [])
        self.port: int = self._door.getsockname()[1]
        self.token = secrets.token_hex(16)

    @property
    def link(self) -> str:
        """The address of the run's page, with the secret; Dask's own begin at `status` instead."""
        return f"http://{HOST}:{self.port}/{self.token}/quarkline"

    @property
    def settings(self) -> dict[str, Any]:
        """Dask's settings while scheduler and workers start: their own web servers serve nothing."""
        return {LINK: self.link, ROUTES: [], WORKER_ROUTES: []}

    def serve(self, pages: Application) -> HTTPServer:
        """Serve these pages alone, which stand below the secret, from this thread's event loop."""
        server = HTTPServer(Gate(pages, self.token))
        server.add_socket(self._door)
        return server

    def serve_beside(self, scheduler: Any, pages: Application) -> None:
        """Replace a scheduler's web server by one with Dask's pages and these, all below the secret."""
        from distributed.dashboard.scheduler import connect
        from distributed.http.routing import RoutingApplication
        from distributed.http.utils import get_handlers

        scheduler.http_server.stop()
        application = RoutingApplication(get_handlers(scheduler, self._routes, self.token))
        server: Any = self.serve(application)
        server.address, server.port = HOST, self.port
        scheduler.http_application, scheduler.http_server = application, server
        scheduler.services["dashboard"] = server
        connect(application, server, scheduler, prefix=self.token)
        application.add_application(pages)

    @property
    def is_open(self) -> bool:
        """True until it is closed."""
        return self._door.fileno() >= 0

    def close(self) -> None:
        """Give the port back, if no scheduler did."""
        self._door.close()


class Gate(Router):
    """Router that hands an application only those requests, of pages and websockets, that know the secret."""

    def __init__(self, application: Application, token: str) -> None:
        self._application, self._token = application, token

    def find_handler(self, request: HTTPServerRequest, **_: Any) -> HTTPMessageDelegate | None:
        """Choose what answers a request; 403 says nothing of what there is."""
        first = request.path.removeprefix("/").partition("/")[0].encode()
        if secrets.compare_digest(first, self._token.encode()):
            return self._application.find_handler(request)
        refusal = partial(self._application.get_handler_delegate, request, ErrorHandler)
        return refusal({"status_code": 403})


def _listening(port: int) -> socket.socket:
    door = socket.socket()
    door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        door.bind((HOST, port))
        door.listen(128)
    except OSError as error:
        door.close()
        raise InputError(
            f"the dashboard cannot listen on port {port} of {HOST} ({error.strerror}): "
            "choose another, or none and take the free one that is printed"
        ) from error
    door.setblocking(False)
    return door
