"""A store under fault: drivers that compute it, the orders that strike them, and what was struck."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fault_stages
import strikes
from strikes import Order
from zygote import Started, Zygote

PATIENCE = 100.0
"""Seconds after which a run that has not ended hangs: far beyond the limits that `fault_driver` sets."""

STOPPED = 0.8
"""Seconds for which a process is stopped that is to go on afterwards."""


@dataclass
class Disturbed:
    """The end of a run that faults struck; status None: it had to be killed, for it hung."""

    status: int | None
    output: str
    errors: str


@dataclass
class Campaign:
    """One store, its folder of orders, and the log of what stages executed.

    Args:
        zygote: starts processes.
        folder: for store, orders and logs.
        choice: of places, processes and chunks.
        cluster: address of a cluster that runs already; empty for one that each driver starts.
        store: path of the store, by default in `folder`.
    """

    zygote: Zygote
    folder: Path
    choice: random.Random
    options: dict[str, Any] = field(default_factory=dict)
    sleep: float = 0.02
    store: Path = Path()
    below: Path = Path()
    """The store where it really lies, while a file system of the suite's stands before it."""
    environment: dict[str, str] = field(default_factory=dict)
    spoiled: set[str] = field(default_factory=set)
    """Files of chunks that a fault damaged or took away."""
    ended: list[Disturbed] = field(default_factory=list)
    leaders: list[int] = field(default_factory=list)
    """Process ids of all drivers; each leads a session."""
    others: list[dict[str, Any]] = field(default_factory=list)
    """Strikes that the suite itself carried out."""
    verdict: tuple[str, str] | None = None
    """Where a fault's surroundings must last until the verdict, and took it themselves."""
    orders_given: int = 0
    tolerance: float = 0.0
    """Seconds by which clocks may differ that were made to jump."""

    def __post_init__(self) -> None:
        if self.store == Path():
            self.store = self.folder / "disk" / "faultstore"
        self.orders.mkdir(parents=True, exist_ok=True)

    @property
    def orders(self) -> Path:
        return self.folder / "orders"

    @property
    def log(self) -> Path:
        return self.folder / "executions.jsonl"

    @property
    def surroundings(self) -> dict[str, str]:
        """Environment variables of every process of this campaign."""
        return {
            strikes.FOLDER: str(self.orders),
            fault_stages.LOG: str(self.log),
            fault_stages.SLEEP: str(self.sleep),
            **self.environment,
        }

    def order(self, kind: str, act: str, place: str, **details: Any) -> Order:
        """Give an order to whoever passes that place next."""
        self.orders_given += 1
        about = {"store": str(self.store), **details}
        order = Order(f"{self.orders_given:03d}", kind, act, place, **about)
        order.give(self.orders)
        return order

    def withdraw(self) -> None:
        """Take all orders back: what is not struck yet never will be."""
        for path in self.orders.glob("*.order"):
            path.unlink()

    def strikes(self) -> list[dict[str, Any]]:
        """All strikes so far, in order."""
        path = self.orders / "strikes.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        found = [json.loads(line) for line in lines] + self.others
        return sorted(found, key=lambda strike: strike["time"])

    def note(self, kind: str, place: str, what: str = "") -> None:
        """Note a strike that the suite carried out itself."""
        held = strikes.committed(str(self.store))
        self.others.append(
            {
                "kind": kind,
                "place": place,
                "what": what,
                "time": time.time(),
                "committed": held,
                "act": "suite",
            }
        )

    def start(self, **options: Any) -> Started:
        """Start the command."""
        arguments = [str(self.store), {"warm": True, **self.options, **options}]
        started = self.zygote.start(
            "fault_driver:main", arguments, self.folder / "output", **self.surroundings
        )
        self.leaders.append(started.pid)
        return started

    def run(
        self,
        during: Callable[[Started], None] = lambda driver: None,
        patience: float = PATIENCE,
        **options: Any,
    ) -> Disturbed:
        """Run the command to its end, waking what orders stopped; `during` is called all the while."""
        driver = self.start(**options)
        return self.attend(driver, during, patience)

    def attend(
        self,
        driver: Started,
        during: Callable[[Started], None] = lambda driver: None,
        patience: float = PATIENCE,
    ) -> Disturbed:
        deadline = time.monotonic() + patience
        while (status := driver.poll()) is None and time.monotonic() < deadline:
            self._wake()
            during(driver)
            time.sleep(0.02)
        if status is None:
            for pid in set(session(driver.pid)) & set(self.enlisted()):
                os.kill(pid, signal.SIGUSR1)
            time.sleep(1)
            kill_session(driver.pid)
            driver.wait(10)
        self._wait_for_silence(driver.pid)
        disturbed = Disturbed(status, driver.output.read_text(), driver.errors.read_text())
        self.ended.append(disturbed)
        return disturbed

    def enlisted(self) -> list[int]:
        """Processes that say where they are when they are asked by SIGUSR1."""
        return [pid for role in ("driver", "worker") for pid in strikes.enlisted(self.orders, role)]

    def _wake(self) -> None:
        """Let processes go on that were stopped for a moment."""
        for strike in self.strikes():
            brief = strike["act"] == "stop" and "long" not in strike["kind"]
            if brief and time.time() - strike["time"] > STOPPED:
                with suppress(ProcessLookupError):
                    os.kill(strike["target"], signal.SIGCONT)

    def _wait_for_silence(self, leader: int) -> None:
        """Nobody of a driver's session is left, or it counts as hung."""
        deadline = time.monotonic() + 20
        while session(leader) and time.monotonic() < deadline:
            self._wake()
            time.sleep(0.05)
        if left := session(leader):
            kill_session(leader)
            self.ended.append(Disturbed(None, "", f"orphans of a driver that ended: {left}"))

    def close(self, *, keep: bool = False) -> None:
        self.withdraw()
        for leader in self.leaders:
            kill_session(leader)
        if not keep:
            shutil.rmtree(self.folder, ignore_errors=True)


def session(leader: int) -> list[int]:
    """Living processes of the session that a process leads."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == leader and fields[0] not in "ZX":
            found.append(int(entry))
    return found


def kill_session(leader: int) -> None:
    for pid in session(leader):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
