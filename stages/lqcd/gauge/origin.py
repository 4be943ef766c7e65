"""The configuration that smeared links were made of, fetched again when its unsmeared links are wanted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import ClassVar

import numpy as np

from stages.base.errors import DisagreementError
from stages.lqcd.kernels.checksum import checksum
from stages.lqcd.kernels.dispatch import Array, array_module, array_module_of
from stages.lqcd.kernels.fields import assign, converted, empty_field
from stages.lqcd.kernels.transfer import to_device
from stages.lqcd.lattice.geometry import EVEN, ODD


@dataclass(frozen=True)
class Origin:
    """Links ``[mu, parity, site, 3, 3]`` as they were given: on a GPU's host they take no room of the GPU.

    links: where they lie. backend: where they are wanted, 'cpu' or 'cuda'; where they lie unless given.
    """

    links: Array
    backend: str | None = None

    scratch: ClassVar = True
    """It has checksums of its own: those of an operator's arrays need not read the host's memory."""

    def fetched(self, parity: int | None = None) -> Array:
        """A copy of the links where they are wanted, complex128; of one parity's sites where it is given.

        ``[mu, parity, site, 3, 3]`` or ``[mu, site, 3, 3]``; the copy is the caller's.

        Raises:
            DisagreementError: what arrived has another checksum than what was first fetched had.
        """
        if parity is None:
            there = self._arrived(product(range(4), (EVEN, ODD)), self.links.shape)
        else:
            there = self._arrived(((mu, parity) for mu in range(4)), (4, *self.links.shape[2:]))
        return converted(there, np.complex128)

    def _arrived(self, parts: Iterable[tuple[int, int]], shape: tuple[int, ...]) -> Array:
        home = array_module(self.links)
        xp = home if self.backend is None else array_module_of(self.backend)
        there = empty_field(shape, self.links.dtype, xp)
        flat = there.reshape(-1, *self.links.shape[2:])
        for place, part in enumerate(parts):
            if xp is home:
                assign(flat[place], self.links[part])
            else:
                to_device(self.links[part], flat[place])
            arrived = checksum(flat[place])
            if arrived != (first := self._sums[part]):
                raise DisagreementError(
                    f"links changed in memory, or on their way to the GPU: their checksum was {first:016x} "
                    f"and is {arrived:016x}"
                )
        return there

    @cached_property
    def _sums(self) -> dict[tuple[int, int], int]:
        """Checksums by direction and parity, as they were when links were first fetched."""
        return {part: checksum(self.links[part]) for part in product(range(4), (EVEN, ODD))}
