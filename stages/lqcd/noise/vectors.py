"""Stochastic sources on the lattice.

A function of (seed, configuration label, noise index, global site, component) and nothing else.

The key of the generator is that of seed and label (`stages.lqcd.kernels.random_numbers.philox_key`), its
counter is (site low 32 bits, site high 32 bits, component // 4, noise index), and component c takes word
c % 4. `site` is the global lexicographic number, so that neither the layout of the field, nor the chunk of
noise vectors, nor the number of workers can alter a value. Every kind has <eta> = 0 and <eta(x) eta(y)^*> =
delta_xy, Z2, Z4 and U(1) even |eta| = 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from stages.base.errors import InputError
from stages.lqcd.kernels import random_numbers
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.kernels.random_numbers import philox_key
from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice

COLOURS = 3
KINDS = ("z2", "z4", "u1", "gaussian")


@dataclass(frozen=True)
class Noise:
    """The noise of a measurement.

    seed: with the configuration's label it names the vectors. kind: 'z2', 'z4', 'u1' or 'gaussian'. dilution:
    {color, time, displacement} (`stages.lqcd.noise.dilution`).
    """

    seed: int
    kind: str = field(metadata={"key": "noise"})
    dilution: Mapping[str, Any] = field(default_factory=dict)


def noise_vectors(
    lattice: Lattice,
    parity: int,
    label: str,
    seed: int,
    indices: Sequence[int],
    kind: str = "z2",
    dtype: DTypeLike = np.complex128,
    xp: ModuleType = np,
) -> Array:
    """Noise on the sites of one parity, ``[site, 3, len(indices)]`` of `dtype` in the array module `xp`.

    `kind`: 'z2' (+-1), 'z4' (+-1, +-i), 'u1' (2^16 roots of unity) are bit-identical on every backend;
    'gaussian' (complex, <|eta|^2> = 1) to 2 ulp. Raises InputError for another kind or parity, or an index
    that is no 32-bit number.
    """
    if kind not in KINDS:
        raise InputError(f"noise kind must be one of {', '.join(KINDS)}, got {kind!r}")
    if parity not in (EVEN, ODD):
        raise InputError(f"parity must be {EVEN} (even) or {ODD} (odd), got {parity!r}")
    for index in indices:
        if not isinstance(index, Integral) or not 0 <= index < 2**32:
            raise InputError(f"a noise index must be a whole number from 0 to 2^32 - 1, got {index}")
    return random_numbers.noise(lattice, parity, philox_key(seed, label), indices, kind, dtype, xp)
