"""Loops over links and over words of files that Numba compiles, imported where they are called.

Whoever plans reads headers and no links, and does not wait for Numba.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numba import njit, typeof

from stages.base.compilation import getting
from stages.base.errors import InputError

if numba.config.DISABLE_JIT:
    raise InputError("kernels must be compiled, but NUMBA_DISABLE_JIT=1 forbids it: unset this variable")

compiled_on_call = njit(nogil=True, cache=True)


def compile_for(function: Any, *arguments: object) -> None:
    """Compile a function for such arguments, or read it, here: threads that call it then find it there."""
    signature = tuple(map(typeof, arguments))
    if signature not in function.overloads:
        with getting() as kernel:
            before = sum(function.stats.cache_misses.values())
            function.compile(signature)
            kernel.compiled |= sum(function.stats.cache_misses.values()) > before


@compiled_on_call
def plaquette_sums(links, forward, first):  # type: ignore[no-untyped-def]
    """Sums of Re tr P over the spatial and over the temporal planes at sites `first`, ... of both parities.

    links ``[mu, parity, site, 3, 3]``; forward ``[parity, mu, n]``: number of x + mu for the n sites from
    `first` on.
    """
    spatial = 0.0
    temporal = 0.0
    for parity in range(2):
        for n in range(forward.shape[2]):
            x = first + n
            for mu in range(1, 4):
                for nu in range(mu):
                    trace = _closed_trace(
                        links[mu, parity, x],
                        links[nu, 1 - parity, forward[parity, mu, n]],
                        links[nu, parity, x],
                        links[mu, 1 - parity, forward[parity, nu, n]],
                    )
                    if mu == 3:
                        temporal += trace
                    else:
                        spatial += trace
    return spatial, temporal


@compiled_on_call
def _closed_trace(a, b, c, d):  # type: ignore[no-untyped-def]
    """Re tr [a b (c d)^dag] in double precision."""
    trace = 0.0
    for i in range(3):
        for j in range(3):
            ab = 0j
            cd = 0j
            for k in range(3):
                ab += np.complex128(a[i, k]) * np.complex128(b[k, j])
                cd += np.complex128(c[i, k]) * np.complex128(d[k, j])
            trace += ab.real * cd.real + ab.imag * cd.imag
    return trace


@compiled_on_call
def link_sums(links):  # type: ignore[no-untyped-def]
    """Sum of Re tr U, largest |(U^dag U - 1)_ij|^2 and largest |det U - 1|^2 of links ``[n, 3, 3]``."""
    trace = 0.0
    unitarity = 0.0
    determinant = 0.0
    u = np.empty((3, 3), np.complex128)
    for n in range(links.shape[0]):
        for i in range(3):  # the same as one assignment, which takes Numba four seconds
            for j in range(3):
                u[i, j] = links[n, i, j]
        trace += u[0, 0].real + u[1, 1].real + u[2, 2].real
        for i in range(3):
            for j in range(i, 3):
                product = np.conj(u[0, i]) * u[0, j] + np.conj(u[1, i]) * u[1, j] + np.conj(u[2, i]) * u[2, j]
                unitarity = _larger(unitarity, _square(product - (1.0 if i == j else 0.0)))
        minors = (
            u[0, 0] * (u[1, 1] * u[2, 2] - u[1, 2] * u[2, 1])
            + u[0, 1] * (u[1, 2] * u[2, 0] - u[1, 0] * u[2, 2])
            + u[0, 2] * (u[1, 0] * u[2, 1] - u[1, 1] * u[2, 0])
        )
        determinant = _larger(determinant, _square(minors - 1.0))
    return trace, unitarity, determinant


@compiled_on_call
def _larger(a, b):  # type: ignore[no-untyped-def]
    """The larger of two numbers; NaN if either is."""
    return a if a >= b or a != a else b


@compiled_on_call
def _square(z):  # type: ignore[no-untyped-def]
    """|z|^2 without the square root."""
    return z.real * z.real + z.imag * z.imag


@compiled_on_call
def crc32(words, table):  # type: ignore[no-untyped-def]
    """CRC-32 of each row of little-endian 32-bit words ``[site, word]`` (an even number of words)."""
    crcs = np.empty(words.shape[0], np.uint32)
    for site in range(words.shape[0]):
        crc = np.uint32(0xFFFFFFFF)
        for k in range(0, words.shape[1], 2):
            low = words[site, k] ^ crc
            high = words[site, k + 1]
            crc = (
                table[7, low & 255]
                ^ table[6, (low >> 8) & 255]
                ^ table[5, (low >> 16) & 255]
                ^ table[4, low >> 24]
                ^ table[3, high & 255]
                ^ table[2, (high >> 8) & 255]
                ^ table[1, (high >> 16) & 255]
                ^ table[0, high >> 24]
            )
        crcs[site] = ~crc
    return crcs


@compiled_on_call
def rotated_xor(words, first, period):  # type: ignore[no-untyped-def]
    """XOR_i rotl(words[i], (first + i) mod period) of 32-bit words ``[n]``."""
    total = np.uint32(0)
    rotation = np.uint32(first % period)
    for word in words:
        total ^= np.uint32(word << rotation) | np.uint32(word >> ((np.uint32(32) - rotation) & np.uint32(31)))
        rotation = rotation + np.uint32(1) if rotation + 1 < period else np.uint32(0)
    return total
