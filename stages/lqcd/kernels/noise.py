"""Noise vectors on the sites of one parity, from the counters of the Philox generator."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from types import ModuleType

import numpy as np
from numpy.typing import DTypeLike, NDArray

from stages.lqcd.kernels.dispatch import Array, kernel
from stages.lqcd.lattice.geometry import Lattice

COLOURS = 3
ROOT_BITS = 16
Z2_ROOTS = np.array([1, -1], complex)
Z4_ROOTS = np.array([1, 1j, -1, -1j])


def noise(
    lattice: Lattice,
    parity: int,
    key: tuple[int, int],
    indices: Sequence[int],
    kind: str,
    dtype: DTypeLike,
    xp: ModuleType,
) -> Array:
    """Noise vectors ``[site, 3, len(indices)]`` in `xp`; kind and counters: `stages.lqcd.noise.vectors`."""
    return kernel("noise.noise", xp.ndarray)(lattice, parity, key, indices, kind, dtype)


def masked(eta: Array, member: NDArray, vectors: NDArray, subsets: NDArray) -> Array:
    """Column i is eta[:, :, vectors[i]] where member ``[site, 3]`` equals subsets[i], and zero elsewhere.

    eta: noise ``[site, 3, N]``; the others are on the host.
    """
    return kernel("noise.masked", type(eta))(eta, member, vectors, subsets)


def signed(eta: Array, signs: NDArray) -> Array:
    """Noise ``[site, 3, N]`` times signs ``[site, K]`` on the host: ``[site, 3, N * K]``, signs fastest."""
    return kernel("noise.signed", type(eta))(eta, signs)


def roots_of(kind: str) -> NDArray[np.complex128]:
    """The values of 'z2', 'z4' or 'u1' noise, a power of two of them."""
    return roots_of_unity() if kind == "u1" else {"z2": Z2_ROOTS, "z4": Z4_ROOTS}[kind]


def table_bits(table: NDArray) -> int:
    """Number of bits of a word that name an entry."""
    return len(table).bit_length() - 1


@cache
def roots_of_unity() -> NDArray[np.complex128]:
    """exp(2 pi i k / 2^16) for k = 0 ... 2^16 - 1, each part correctly rounded, complex128; read-only.

    One quadrant by repeated rotation in 160-bit fixed point, the others by multiplication with i: no
    mathematical library takes part, so that the table has the same bits on every machine.
    """
    bits, quadrant = 160, 2**ROOT_BITS // 4
    one = 1 << bits
    step_cos, step_sin = _small_rotation(bits)
    points, cosine, sine = [], one, 0
    for _ in range(quadrant):
        points.append(complex(cosine / one, sine / one))
        cosine, sine = (
            (cosine * step_cos - sine * step_sin) >> bits,
            (sine * step_cos + cosine * step_sin) >> bits,
        )
    first = np.array(points)
    table = np.concatenate([first, 1j * first, -first, -1j * first])
    table.flags.writeable = False
    return table


def _small_rotation(bits: int) -> tuple[int, int]:
    """Cosine and sine of 2 pi / 2^16 as integers in units of 2^-bits, by Taylor series."""
    one = 1 << bits
    angle = (_PI_2_200 >> (200 - bits)) * 2 >> ROOT_BITS
    term, sums = one, [one, 0]
    for order in range(1, 24):
        term = (term * angle >> bits) // order
        sums[order % 2] += -term if order % 4 >= 2 else term
    return sums[0], sums[1]


_PI_2_200 = 0x3243F6A8885A308D313198A2E03707344A4093822299F31D008
"""floor(pi * 2^200)."""
