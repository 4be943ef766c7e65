"""Philox4x32-10, a counter-based generator, and what is drawn: noise vectors and random blocks.

Philox is by Salmon, Moraes, Dror and Shaw (SC'11, doi:10.1145/2063384.2063405). The same integers come out on
NumPy and CuPy: only 32-bit values held in uint64 are multiplied, shifted and xored.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache
from types import ModuleType

import numpy as np
from numpy.typing import DTypeLike, NDArray

from stages.lqcd.kernels.dispatch import Array, kernel
from stages.lqcd.kernels.operands import check_blocks
from stages.lqcd.lattice.geometry import Lattice

MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
WEYL = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
ROUNDS = 10
LOW = np.uint64(0xFFFFFFFF)
WORD = np.uint64(32)

Words = tuple[Array, Array, Array, Array]

COLOURS = 3
ROOT_BITS = 16
Z2_ROOTS = np.array([1, -1], complex)
Z4_ROOTS = np.array([1, 1j, -1, -1j])

_PI_2_200 = 0x3243F6A8885A308D313198A2E03707344A4093822299F31D008
"""floor(pi * 2^200)."""

GOLDEN = 0x9E3779B97F4A7C15


def philox_key(seed: int, label: str) -> tuple[int, int]:
    """The key of a configuration: two 32-bit integers, of the seed and the configuration's label.

    The first 64 bits of SHA-256 of ``f"{seed}\\0{label}"``, little endian.
    """
    number = int.from_bytes(hashlib.sha256(f"{seed}\0{label}".encode()).digest()[:8], "little")
    return number & 0xFFFFFFFF, number >> 32


def philox4x32(counter: Words, key: tuple[int, int]) -> Words:
    """Four 32-bit words for each counter under one key.

    `counter`: four uint64 arrays of one broadcastable shape with values below 2^32, NumPy or CuPy. `key`:
    two integers below 2^32. Returns four uint64 arrays with values below 2^32, each uniform over the 32-bit
    integers. Compiled kernels call it with single numbers.
    """
    c0, c1, c2, c3 = counter
    k0, k1 = np.uint64(key[0]), np.uint64(key[1])
    for _ in range(ROUNDS):
        p0, p1 = c0 * MULTIPLIERS[0], c2 * MULTIPLIERS[1]
        c0, c1, c2, c3 = (p1 >> WORD) ^ c1 ^ k0, p1 & LOW, (p0 >> WORD) ^ c3 ^ k1, p0 & LOW
        k0, k1 = (k0 + WEYL[0]) & LOW, (k1 + WEYL[1]) & LOW
    return c0, c1, c2, c3


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
    return kernel("random_numbers.noise", xp.ndarray)(lattice, parity, key, indices, kind, dtype)


def masked(eta: Array, member: NDArray, vectors: NDArray, subsets: NDArray) -> Array:
    """Column i is eta[:, :, vectors[i]] where member ``[site, 3]`` equals subsets[i], and zero elsewhere.

    eta: noise ``[site, 3, N]``; the others are on the host.
    """
    return kernel("random_numbers.masked", type(eta))(eta, member, vectors, subsets)


def signed(eta: Array, signs: NDArray) -> Array:
    """Noise ``[site, 3, N]`` times signs ``[site, K]`` on the host: ``[site, 3, N * K]``, signs fastest."""
    return kernel("random_numbers.signed", type(eta))(eta, signs)


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


def fill_random(block: Array, seed: int, draw: int) -> None:
    """Fill a C-contiguous complex block with numbers whose parts are uniform in (-1, 1).

    The bits are those of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014) at counter (draw << 40) + element.
    """
    check_blocks(block=block)
    kernel("random_numbers.fill_random", type(block))(block, seed, draw)


def first_counter(seed: int, draw: int) -> np.uint64:
    """The generator's state before the first element of a draw."""
    return np.uint64((seed * 0xD1342543DE82EF95 + (draw << 40) * GOLDEN) % 2**64)
