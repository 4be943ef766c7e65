"""Index tables of lattices: shared while they are used, and a bounded number of bytes of them after that."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import wraps
from threading import Lock
from typing import Any, ParamSpec
from weakref import WeakValueDictionary

from numpy.typing import NDArray

MOST_BYTES = 1 << 30
"""Of tables that nobody uses: those of single hops on 64^3 x 96."""

P = ParamSpec("P")


class _Recent:
    """Tables in the order of their last use, the oldest dropped where they are more than `MOST_BYTES`."""

    def __init__(self) -> None:
        self._tables: OrderedDict[Any, NDArray[Any]] = OrderedDict()
        self._lock = Lock()

    def keep(self, key: Any, table: NDArray[Any]) -> None:
        with self._lock:
            self._tables[key] = table
            self._tables.move_to_end(key)
            while self._tables and self.nbytes > MOST_BYTES:
                self._tables.popitem(last=False)

    @property
    def nbytes(self) -> int:
        return sum(table.nbytes for table in self._tables.values())


recent = _Recent()


def shared_table(make: Callable[P, NDArray[Any]]) -> Callable[P, NDArray[Any]]:
    """Turn a function that computes a table into one that gives the same read-only one while it is in use."""
    alive: WeakValueDictionary[Any, NDArray[Any]] = WeakValueDictionary()

    @wraps(make)
    def table(*arguments: P.args, **named: P.kwargs) -> NDArray[Any]:
        key = (make, arguments, tuple(named.items()))
        found = alive.get(key)
        if found is None:
            found = make(*arguments, **named)
            found.flags.writeable = False
            alive[key] = found
        recent.keep(key, found)
        return found

    return table
