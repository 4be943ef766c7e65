"""Noise rho(t, spin, eigenvector) of stochastic LapH (arXiv:1104.3870).

A function of (seed, configuration label, noise index, time, spin, eigenvector) and nothing else.

The key of the generator is that of `stages.lqcd.noise.vectors` for the label followed by ``"\\0laph"``, so
that noise on sites of the same seed is independent. The counter is (eigenvector, time, 0, noise index), and
each spin takes its word of the four. More eigenvectors leave the noise of the lower ones as it is. <rho> = 0,
<rho_i rho_j^*> = delta_ij, |rho| = 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral

import numpy as np
from numpy.typing import NDArray

from stages.base.errors import InputError
from stages.lqcd.kernels.random_numbers import philox4x32, philox_key, roots_of, table_bits

KINDS = ("z2", "z4", "u1")


def laph_noise(
    label: str, seed: int, index: int, times: Sequence[int], eigenvectors: int, kind: str
) -> NDArray[np.complex128]:
    """Noise rho of vector `index` on some time slices, complex128 ``[time, spin, eigenvector]``.

    kind: 'z2' (+-1), 'z4' (+-1, +-i) or 'u1' (2^16 roots of unity). Raises InputError.
    """
    check_noise(index, kind)
    time, vector = (
        axis.astype(np.uint64) for axis in np.meshgrid(times, np.arange(eigenvectors), indexing="ij")
    )
    constant = np.zeros_like(time)
    counter = (vector, time, constant, constant + np.uint64(index))
    words = np.stack(philox4x32(counter, philox_key(seed, f"{label}\0laph")), axis=1)
    table = roots_of(kind)
    return table[words >> np.uint64(32 - table_bits(table))]


def check_noise(index: int, kind: str) -> None:
    """Raises InputError for another kind than those of `KINDS` and an index that is no 32-bit number."""
    if kind not in KINDS:
        raise InputError(f"kind of LapH noise must be one of {', '.join(KINDS)}, got {kind!r}")
    if not isinstance(index, Integral) or not 0 <= index < 2**32:
        raise InputError(f"a noise index must be a whole number from 0 to 2^32 - 1, got {index}")
