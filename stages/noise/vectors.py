"""Stochastic sources: a function of (seed, configuration label, noise index, global site, component) and
nothing else.

The key of the generator is the first 64 bits of SHA-256 of ``f"{seed}\\0{label}"`` (little endian), its
counter is (site low 32 bits, site high 32 bits, component // 4, noise index), and component c takes word
c % 4. `site` is the global lexicographic number, so that neither the layout of the field, nor the chunk of
noise vectors, nor the number of workers can alter a value. Every kind has <eta> = 0 and <eta(x) eta(y)^*> =
delta_xy, Z2, Z4 and U(1) even |eta| = 1.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import cache
from types import ModuleType

import numpy as np
from numpy.typing import DTypeLike, NDArray

from stages.kernels.dispatch import Array
from stages.lattice.errors import InputError
from stages.lattice.geometry import Lattice
from stages.noise.philox import LOW, WORD, philox4x32

COLOURS = 3
ROOT_BITS = 16
Z4_ROOTS = np.array([1, 1j, -1, -1j])


def noise_key(seed: int, label: str) -> tuple[int, int]:
    """The Philox key of a configuration: two 32-bit integers from the seed and the configuration's label."""
    number = int.from_bytes(hashlib.sha256(f"{seed}\0{label}".encode()).digest()[:8], "little")
    return number & 0xFFFFFFFF, number >> 32


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
    'gaussian' (complex, <|eta|^2> = 1) to 2 ulp. Raises InputError for another kind or an index that is no
    32-bit number.
    """
    if kind not in KINDS:
        raise InputError(f"noise kind must be one of {', '.join(KINDS)}, got {kind!r}")
    key = noise_key(seed, label)
    sites = xp.asarray(lattice.lexicographic(parity).astype(np.uint64))
    noise = xp.empty((len(sites), COLOURS, len(indices)), dtype)
    for column, index in enumerate(indices):
        if not 0 <= index < 2**32:
            raise InputError(f"a noise index must lie between 0 and 2^32 - 1, got {index}")
        noise[:, :, column] = KINDS[kind](_SiteWords(sites, key, index, xp), xp)
    return noise


class _SiteWords:
    """Words of one noise vector: ``words(n)`` are n components of each site, uint64 ``[site, n]``."""

    def __init__(self, sites: Array, key: tuple[int, int], index: int, xp: ModuleType) -> None:
        self.sites, self.key, self.index, self.xp = sites, key, index, xp

    def __call__(self, components: int) -> Array:
        blocks = [self._block(number) for number in range(-(-components // 4))]
        return self.xp.stack([word for block in blocks for word in block][:components], axis=-1)

    def _block(self, number: int) -> tuple[Array, ...]:
        constant = self.xp.zeros_like(self.sites)
        low, high = self.sites & LOW, self.sites >> WORD
        return philox4x32(
            (low, high, constant + np.uint64(number), constant + np.uint64(self.index)), self.key
        )


def _top_bits(words: Array, count: int) -> Array:
    """The leading bits of 32-bit words as an index, int64."""
    return (words >> np.uint64(32 - count)).astype(np.int64)


def _z2(words: _SiteWords, xp: ModuleType) -> Array:
    return 1.0 - 2.0 * _top_bits(words(COLOURS), 1)


def _z4(words: _SiteWords, xp: ModuleType) -> Array:
    return xp.asarray(Z4_ROOTS)[_top_bits(words(COLOURS), 2)]


def _u1(words: _SiteWords, xp: ModuleType) -> Array:
    return xp.asarray(roots_of_unity())[_top_bits(words(COLOURS), ROOT_BITS)]


def _gaussian(words: _SiteWords, xp: ModuleType) -> Array:
    """Box-Muller: sqrt(-log u) exp(2 pi i v), with u and v from components 2c and 2c + 1 of colour c."""
    uniform = (words(2 * COLOURS).astype(np.float64) + 0.5) * 2.0**-32
    radius, angle = xp.sqrt(-xp.log(uniform[:, 0::2])), 2.0 * np.pi * uniform[:, 1::2]
    return radius * (xp.cos(angle) + 1j * xp.sin(angle))


KINDS: dict[str, Callable[[_SiteWords, ModuleType], Array]] = {
    "z2": _z2,
    "z4": _z4,
    "u1": _u1,
    "gaussian": _gaussian,
}


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
    """cos and sin of 2 pi / 2^16 as integers in units of 2^-bits, by Taylor series."""
    one = 1 << bits
    angle = (_PI_2_200 >> (200 - bits)) * 2 >> ROOT_BITS
    term, sums = one, [one, 0]
    for order in range(1, 24):
        term = (term * angle >> bits) // order
        sums[order % 2] += -term if order % 4 >= 2 else term
    return sums[0], sums[1]


_PI_2_200 = 0x3243F6A8885A308D313198A2E03707344A4093822299F31D008
"""floor(pi * 2^200)."""
