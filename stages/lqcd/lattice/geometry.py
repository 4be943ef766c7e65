"""The periodic four-dimensional lattice and every index computation on it.

Conventions, stated once: directions mu = 0, 1, 2, 3 are x, y, z, t. The lexicographic site order is
t, z, y, x with x fastest. The parity of a site is (x + y + z + t) mod 2, 0 = even. Within a parity, sites
are numbered in the same order with x halved: ``((t * Lz + z) * Ly + y) * (Lx / 2) + x // 2``.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from numbers import Integral
from threading import Lock
from typing import Any, ParamSpec
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from stages.base.errors import InputError

X, Y, Z, T = range(4)
EVEN, ODD = 0, 1
DIRECTIONS = ("x", "y", "z", "t")
PARITIES = ("even", "odd")
MOST_BYTES = 1 << 30
"""Of tables that nobody uses: those of single hops on 64^3 x 96."""

P = ParamSpec("P")


@dataclass(frozen=True)
class Lattice:
    """Extents (x, y, z, t) of a periodic lattice; all even, because fields are stored by parity.

    Fermion boundary conditions are no property of the lattice: they are signs on the links
    (`stages.lqcd.gauge.phases.with_boundary`), given explicitly for every fermion field.
    """

    extents: tuple[int, int, int, int]

    def __post_init__(self) -> None:
        given = tuple(self.extents)
        if len(given) != 4 or not all(isinstance(n, Integral) and n >= 2 and n % 2 == 0 for n in given):
            raise InputError(
                "lattice extents must be four even numbers of at least 2 (x y z t), got "
                f"({', '.join(map(str, given))}): fields are stored by parity"
            )
        object.__setattr__(self, "extents", tuple(int(extent) for extent in given))

    def __str__(self) -> str:
        return "x".join(str(extent) for extent in self.extents)

    @property
    def volume(self) -> int:
        """Number of sites."""
        x, y, z, t = self.extents
        return x * y * z * t

    @property
    def half_volume(self) -> int:
        """Number of sites of one parity."""
        return self.volume // 2

    @property
    def time_extent(self) -> int:
        return self.extents[T]

    @property
    def sites_per_slice(self) -> int:
        """Sites of one parity on one time slice; site // sites_per_slice is t."""
        return self.half_volume // self.time_extent

    def coordinates(self, parity: int) -> NDArray[np.int32]:
        """Coordinates (x, y, z, t) of every site of a parity, int32 ``[site, 4]``; read-only."""
        return _coordinates(self.extents, parity)

    def lexicographic(self, parity: int) -> NDArray[np.int64]:
        """Global lexicographic number of every site of a parity, int64 ``[site]``."""
        x, y, z, t = self.coordinates(parity).T.astype(np.int64)
        lx, ly, lz, _ = self.extents
        return ((t * lz + z) * ly + y) * lx + x

    def site(self, coordinates: NDArray[np.integer]) -> NDArray[np.int32]:
        """Site number within its parity for coordinates ``[..., 4]``, wrapped; int32 ``[...]``."""
        x, y, z, t = np.moveaxis(np.mod(coordinates, self.extents), -1, 0)
        lx, ly, lz, _ = self.extents
        return (((t * lz + z) * ly + y) * (lx // 2) + x // 2).astype(np.int32)

    def neighbour(self, parity: int, mu: int, hops: int) -> NDArray[np.int32]:
        """Number of the site x + hops * mu for each site x of `parity`; int32 ``[site]``, read-only."""
        return _neighbour(self, parity, mu, hops)


class _Recent:
    """Tables in the order of their last use, the oldest dropped where they are more than `MOST_BYTES`."""

    def __init__(self) -> None:
        self._tables: OrderedDict[Any, NDArray[Any]] = OrderedDict()
        self._lock = Lock()
        self.nbytes = 0

    def keep(self, key: Any, table: NDArray[Any]) -> None:
        with self._lock:
            if (before := self._tables.pop(key, None)) is not None:
                self.nbytes -= before.nbytes
            self._tables[key] = table
            self.nbytes += table.nbytes
            while self._tables and self.nbytes > MOST_BYTES:
                self.nbytes -= self._tables.popitem(last=False)[1].nbytes


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


@shared_table
def _coordinates(extents: tuple[int, int, int, int], parity: int) -> NDArray[np.int32]:
    lx, ly, lz, lt = extents
    t, z, y, half_x = np.indices((lt, lz, ly, lx // 2), dtype=np.int32).reshape(4, -1)
    x = 2 * half_x + (y + z + t + parity) % 2
    coordinates = np.stack([x, y, z, t], axis=-1)
    return coordinates


@shared_table
def _neighbour(lattice: Lattice, parity: int, mu: int, hops: int) -> NDArray[np.int32]:
    lx, ly, lz, lt = lattice.extents
    numbers = np.arange(lattice.half_volume, dtype=np.int32).reshape(lt, lz, ly, lx // 2)
    if mu != X:
        return np.roll(numbers, -hops, axis=T - mu).reshape(-1)
    t, z, y = np.indices((lt, lz, ly), np.int32, sparse=True)
    odd_x = ((t + z + y + parity) % 2 == 1)[..., None]  # rows whose first site has x = 1
    moved = (np.roll(numbers, -((odd + hops) // 2), axis=T) for odd in (1, 0))
    return np.where(odd_x, *moved).reshape(-1)
