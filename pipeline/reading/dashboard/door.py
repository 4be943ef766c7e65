"""The web server of a dashboard: all pages stand below a secret path, all else is refused."""

from __future__ import annotations

import logging
import secrets
import socket
from collections.abc import Callable
from functools import partial
from typing import Any

import dask
from distributed import Scheduler
from tornado.httpserver import HTTPServer
from tornado.httputil import HTTPMessageDelegate, HTTPServerRequest
from tornado.netutil import bind_sockets
from tornado.routing import Router
from tornado.web import Application, ErrorHandler

from pipeline.running.limits import HOST
from pipeline.running.watching import ROUTES
from stages.base.errors import InputError

LOGGERS = ("tornado.access", "tornado.application", "tornado.general")
"""Of a web server: they name the path of a request that fails, and others may read what a job prints."""


def _without(secret: str, record: logging.LogRecord) -> bool:
    """Filter of a logger that takes a secret out of what is logged."""
    record.msg, record.args = record.getMessage().replace(secret, "..."), ()
    return True


class Door:
    """A port of this machine alone, taken at once, and the secret that whoever asks there must show.

    Args:
        port: where it listens on 127.0.0.1; any free one by default.
        pages: makes the pages below a secret, in the thread of the event loop that serves them.

    Raises:
        InputError: the port is taken or not allowed.
    """

    def __init__(self, port: int, pages: Callable[[str], Application]) -> None:
        self._socket, self._pages = _listening(port), pages
        self._routes = dask.config.get(ROUTES, [])
        self.port: int = self._socket.getsockname()[1]
        self.token = secrets.token_hex(16)
        for name in LOGGERS:
            logging.getLogger(name).addFilter(partial(_without, self.token))

    @property
    def link(self) -> str:
        """The address of the first page, with the secret; Dask's own begin at `status` instead."""
        return f"http://{HOST}:{self.port}/{self.token}/quarkline"

    def serve(self, application: Application | None = None) -> HTTPServer:
        """Serve the pages alone, or an application with all of them, from this thread's event loop."""
        server = HTTPServer(Gate(application or self._pages(self.token), self.token))
        server.add_socket(self._socket)
        return server

    def serve_beside(self, scheduler: Scheduler) -> None:
        """Replace a scheduler's web server by one with Dask's pages and these, all below the secret."""
        from distributed.dashboard.scheduler import connect
        from distributed.http.routing import RoutingApplication
        from distributed.http.utils import get_handlers

        if self._socket.fileno() < 0:  # the run was stopped while its scheduler started
            return
        pages = self._pages(self.token)
        scheduler.http_server.stop()
        application = RoutingApplication(get_handlers(scheduler, self._routes, self.token))
        server: Any = self.serve(application)
        server.address, server.port = HOST, self.port
        scheduler.http_application, scheduler.http_server = application, server
        scheduler.services["dashboard"] = server
        connect(application, server, scheduler, prefix=self.token)
        application.add_application(pages)

    def close(self) -> None:
        """Give the port back, if no scheduler did."""
        self._socket.close()


class Gate(Router):
    """Router that hands an application only those requests, of pages and websockets, that know the secret."""

    def __init__(self, application: Application, token: str) -> None:
        self._application, self._token = application, token

    def find_handler(self, request: HTTPServerRequest, **_: object) -> HTTPMessageDelegate | None:
        """Choose what answers a request; 403 says nothing of what there is."""
        first = request.path.removeprefix("/").partition("/")[0].encode()
        if secrets.compare_digest(first, self._token.encode()):
            return self._application.find_handler(request)
        refusal = partial(self._application.get_handler_delegate, request, ErrorHandler)
        return refusal({"status_code": 403})


def _listening(port: int) -> socket.socket:
    try:
        return bind_sockets(port, HOST)[0]
    except OSError as error:
        raise InputError(
            f"the dashboard cannot listen on port {port} of {HOST} ({error.strerror}): "
            "choose another, or none and take the free one that is printed"
        ) from error
