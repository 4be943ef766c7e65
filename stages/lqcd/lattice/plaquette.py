"""Plaquette, link trace and distance from SU(3) of a gauge field.

Everything is computed in double precision, whatever the precision of the links, in fixed blocks of sites that
are added up in a fixed order: the digits do not depend on the number of threads, and no temporary grows with
the volume.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stages.base.errors import InputError
from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice
from stages.lqcd.lattice.threads import compile_for, compiled_on_call, in_threads

BLOCK = 4096
"""Sites (or links) that one kernel call sums."""


class Plaquette(NamedTuple):
    """Mean of Re tr P / 3 over all plaquettes, over the spatial planes, and over the planes that contain t.

    MILC prints sums over three planes (``ss = 3 * spatial``, ``st = 3 * temporal``); openQCD and DDalphaAMG
    store ``3 * total``; Chroma, Grid and NERSC's header use `total` itself.
    """

    total: float
    spatial: float
    temporal: float


class LinkStatistics(NamedTuple):
    """Mean of Re tr U / 3, largest |(U^dag U - 1)_ij| and |det U - 1| of all links; NaN if an entry is."""

    trace: float
    unitarity_deviation: float
    determinant_deviation: float


def plaquette(links: NDArray, lattice: Lattice) -> Plaquette:
    """Mean of Re tr [U_mu(x) U_nu(x+mu) U_mu(x+nu)^dag U_nu(x)^dag] / 3; links ``[mu, parity, site, 3, 3]``.

    Raises InputError for links of another shape.
    """
    expected = (4, 2, lattice.half_volume, 3, 3)
    if links.shape != expected:
        raise InputError(f"links on {lattice} have shape {expected} (mu parity site 3 3), got {links.shape}")
    forward = [[lattice.neighbour(parity, mu, 1) for mu in range(4)] for parity in (EVEN, ODD)]

    def arguments(block: slice) -> tuple[NDArray, NDArray, int]:
        return links, np.array([[sites[block] for sites in of_parity] for of_parity in forward]), block.start

    def sums(block: slice) -> tuple[float, float]:
        return _plaquette_sums(*arguments(block))

    compile_for(_plaquette_sums, *arguments(slice(0, 1)))
    spatial, temporal = (
        math.fsum(part) / (9 * lattice.volume)
        for part in zip(*in_threads(sums, _blocks(lattice.half_volume)), strict=True)
    )
    return Plaquette((spatial + temporal) / 2, spatial, temporal)


def link_statistics(links: NDArray) -> LinkStatistics:
    """Trace and deviations from SU(3) in one pass over C-contiguous links ``[..., 3, 3]``."""
    matrices = links.reshape(-1, 3, 3)
    compile_for(_link_sums, matrices[:1])
    parts = in_threads(lambda block: _link_sums(matrices[block]), _blocks(len(matrices)))
    traces, unitarity, determinant = zip(*parts, strict=True)
    # np.max, unlike max, hands on a NaN.
    return LinkStatistics(
        math.fsum(traces) / (3 * len(matrices)), math.sqrt(np.max(unitarity)), math.sqrt(np.max(determinant))
    )


def _blocks(length: int) -> Iterator[slice]:
    return (slice(start, min(start + BLOCK, length)) for start in range(0, length, BLOCK))


@compiled_on_call
def _plaquette_sums(links, forward, first):  # type: ignore[no-untyped-def]
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
def _link_sums(links):  # type: ignore[no-untyped-def]
    """Sum of Re tr U, largest |(U^dag U - 1)_ij|^2 and largest |det U - 1|^2 of links ``[n, 3, 3]``."""
    trace = 0.0
    unitarity = 0.0
    determinant = 0.0
    u = np.empty((3, 3), np.complex128)
    for n in range(links.shape[0]):
        u[:] = links[n]
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
