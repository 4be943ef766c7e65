"""Noise: Philox against its published vectors, and the bits of noise vectors against pinned ones."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256

import numpy as np

from stages.lqcd.kernels.dispatch import as_numpy, kernels_of
from stages.lqcd.kernels.random_numbers import philox4x32, philox_key, roots_of
from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice
from stages.lqcd.noise.vectors import noise_vectors
from workflows.certification.check import Check, Device, measured

KNOWN_ANSWERS = (
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
)
"""Counter, key and answer of Philox4x32-10 as Random123 ships them (tests/kat_vectors)."""

LATTICE = Lattice((6, 4, 2, 10))
LABEL, SEED, INDICES = "l2464f211b600m0102m0509m635a.102", 20261121, (0, 3, 4096)
PINNED = {"z2": "c2bcbf414d5e9bf8", "z4": "41a0c3a0e1c89256", "u1": "2c576e0825d7f9e6"}
"""First 16 digits of SHA-256 of odd noise vectors."""
BITS = {"z2": 1, "z4": 2, "u1": 16}
"""Bits of a word that choose the root of unity."""
GAUSSIAN_ULP = 2.0


def noise_bits(device: Device) -> Iterator[Check]:
    """Checks of the generator and of the noise that kernels make of it."""
    yield measured("noise: Philox4x32-10", "published vectors of Random123; words that differ", _wrong(), 0)
    for kind, pinned in PINNED.items():
        vectors = noise_vectors(LATTICE, ODD, LABEL, SEED, INDICES, kind, xp=device.xp)
        found = sha256(np.ascontiguousarray(as_numpy(vectors)).tobytes()).hexdigest()[:16]
        about = f"bits of {kind} noise and pinned ones; 1 if they differ"
        yield measured(f"noise: {kind} bits", about, float(found != pinned), 0)
        about = f"{kind} noise and the words of Philox at each site; values that differ"
        yield measured(f"noise: {kind} counters", about, float(_other_roots(kind, device)), 0)
    own = as_numpy(noise_vectors(LATTICE, EVEN, LABEL, SEED, INDICES, "gaussian", xp=device.xp))
    with kernels_of("cpu"):
        host = noise_vectors(LATTICE, EVEN, LABEL, SEED, INDICES, "gaussian", xp=np)
    about = "Gaussian noise and that of the processor's kernels; units in the last place"
    a, b = (np.ascontiguousarray(vectors).view(float) for vectors in (own, host))
    ulps = np.abs(a - b) / np.spacing(np.abs(b))
    yield measured("noise: Gaussian", about, ulps.max(), GAUSSIAN_ULP)


def _wrong() -> float:
    wrong = 0
    for counter, key, answer in KNOWN_ANSWERS:
        c, k, a = ([int(word, 16) for word in text.split()] for text in (counter, key, answer))
        c0, c1, c2, c3 = (np.array([word], np.uint64) for word in c)
        words = philox4x32((c0, c1, c2, c3), (k[0], k[1]))
        wrong += sum(int(word[0]) != expected for word, expected in zip(words, a, strict=True))
    return float(wrong)


def _other_roots(kind: str, device: Device) -> int:
    """Values of noise that are not the root of unity that their documented counter gives."""
    roots, coordinates, wrong = roots_of(kind), LATTICE.coordinates(EVEN), 0
    x, y, z, t = coordinates.T.astype(np.uint64)
    nx, ny, nz, _ = (np.uint64(extent) for extent in LATTICE.extents)
    site = ((t * nz + z) * ny + y) * nx + x
    vectors = as_numpy(noise_vectors(LATTICE, EVEN, LABEL, SEED, INDICES, kind, xp=device.xp))
    zero = np.zeros_like(site)
    for position, index in enumerate(INDICES):
        words = philox4x32((site, zero, zero, zero + np.uint64(index)), philox_key(SEED, LABEL))
        chosen = np.stack([word >> np.uint64(32 - BITS[kind]) for word in words[:3]], axis=1)
        wrong += int((vectors[:, :, position] != roots[chosen.astype(int)]).sum())
    return wrong
