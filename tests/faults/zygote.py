"""Processes that need not import anything: forked from one that has, which knows how each of them ended.

`python zygote.py` reads requests, one JSON document a line, and answers each with one: `{"start": function,
"arguments": [...], "environment": {...}, "output": path, "errors": path}` with a process id, `{"ended": pid}`
with its exit status, or null while it lives.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import traceback
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


@dataclass
class Started:
    """A forked process, the leader of its own session."""

    zygote: Zygote
    pid: int
    output: Path
    errors: Path

    def poll(self) -> int | None:
        return self.zygote.ask({"ended": self.pid})

    def wait(self, seconds: float) -> int | None:
        """The exit status, negative for a signal; None if it did not end in this time."""
        deadline = time.monotonic() + seconds
        while (status := self.poll()) is None and time.monotonic() < deadline:
            time.sleep(0.02)
        return status


class Zygote:
    """The warm process, seen from the suite."""

    def __init__(self, *modules: str, **environment: str) -> None:
        path = os.pathsep.join([str(HERE.parents[1]), str(HERE), os.environ.get("PYTHONPATH", "")])
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "zygote.py"), *modules],
            env={**os.environ, "PYTHONPATH": path, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, request: dict[str, Any]) -> Any:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def start(self, function: str, arguments: list[Any], folder: Path, **environment: str) -> Started:
        """Call `module:function` in a new process; its output goes to files in a folder."""
        folder.mkdir(parents=True, exist_ok=True)
        name = f"{function.partition(':')[0]}-{time.monotonic_ns()}"
        output, errors = folder / f"{name}.out", folder / f"{name}.err"
        request = {"start": function, "arguments": arguments, "environment": environment}
        pid = self.ask({**request, "output": str(output), "errors": str(errors)})
        return Started(self, pid, output, errors)

    def close(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait(10)


_ended: dict[int, int] = {}


def answer(request: dict[str, Any]) -> int | None:
    if "start" in request:
        return os.fork() or become(request)
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            break
        if not pid:
            break
        _ended[pid] = os.waitstatus_to_exitcode(status)
    return _ended.get(request["ended"])


def become(request: dict[str, Any]) -> int:
    """The life of a forked process; does not return."""
    os.setsid()
    for number, name in ((1, "output"), (2, "errors")):
        handle = os.open(request[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(handle, number)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.environ.update(request["environment"])
    module, _, function = request["start"].partition(":")
    status = 70
    try:
        status = getattr(import_module(module), function)(*request["arguments"]) or 0
    except SystemExit as error:
        status = int(error.code or 0)
    except BaseException:
        traceback.print_exc()
        status = 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def main(modules: list[str]) -> None:
    for name in modules:
        import_module(name)
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
