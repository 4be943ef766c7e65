"""Stochastic loops: one estimate of the trace per noise vector, the sum over its diluted subsets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stages.lqcd.estimators.split_even import SplitEvenTrace
from stages.lqcd.estimators.trace import LoopTrace, Progress, no_progress
from stages.lqcd.kernels.dispatch import Array, as_numpy
from stages.lqcd.kernels.fields import contiguous
from stages.lqcd.kernels.gamma import COLOURS, GAMMA5, SPINS
from stages.lqcd.kernels.slice_products import slice_dots
from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice
from stages.lqcd.noise.dilution import Dilution, dilute
from stages.lqcd.solvers.solution import column_blocks


class Loops(NamedTuple):
    """Per noise vector: J_mu(t) ``[noise, mu, t]``, and (2/V) tr M^-1 by parity ``[noise, parity]``.

    Of a trace of several flavours: ``[noise, flavour, mu, t]`` and ``[noise, flavour, parity]``.
    """

    current: NDArray[np.float64]
    density: NDArray[np.float64]


Trace = LoopTrace | SplitEvenTrace
"""A trace by solves and contractions of sources, of one flavour or of several."""


def stochastic_loops(
    trace: Trace,
    noise: Sequence[Array],
    dilution: Dilution,
    width: int,
    progress: Progress = no_progress,
) -> Loops:
    """Loops of the noise vectors `noise`: ``[site, 3, N]`` on the even and on the odd sites.

    The N vectors times the subsets of a parity are solved in blocks of `width` right-hand sides, which may
    cut a vector anywhere. Raises InputError where the dilution does not divide the lattice.
    """
    vectors = noise[EVEN].shape[-1]
    partitions = [dilution.partition(trace.lattice, parity) for parity in (EVEN, ODD)]
    jobs = [
        (partition, block)
        for partition in partitions
        for block in column_blocks(vectors * len(partition.subsets), width)
    ]
    loops = no_loops(trace, vectors)
    for number, (partition, block) in enumerate(jobs, start=1):
        parity = partition.parity
        contracted = trace.contract(parity, dilute(noise[parity], partition, block))
        vector = np.array(block) // len(partition.subsets)
        np.add.at(loops.current, vector, contracted.current)
        np.add.at(loops.density[..., parity], vector, contracted.density)
        progress(number, len(jobs))
    return loops


def no_loops(trace: Trace, vectors: int) -> Loops:
    """Zeros, to add contractions to."""
    shape = (vectors, *trace.flavours)
    return Loops(np.zeros((*shape, 4, trace.lattice.time_extent)), np.zeros((*shape, 2)))


def one_end_difference(phi: Array, mu: float, gammas: Sequence[NDArray], lattice: Lattice) -> NDArray:
    """Traces of G (M_u^-1 - M_d^-1) of twisted quarks by slices, complex128 ``[source, gamma, time]``.

    The one-end trick (arXiv:0803.0224): M_u = D - i mu gamma5, M_d = D + i mu gamma5 = gamma5 M_u^dag gamma5
    give M_u^-1 - M_d^-1 = 2 i mu M_u^-1 gamma5 M_d^-1 = 2 i mu M_u^-1 (M_u^-1)^dag gamma5. So phi = M_u^-1
    eta with <eta eta^dag> = 1 estimates them by 2 i mu phi^dag gamma5 G phi, with noise of order mu.

    phi: ``[parity, site, 12, source]``; gammas: matrices G ``[4, 4]``. Raises InputError.
    """
    products = np.zeros((SPINS, SPINS, phi.shape[-1], lattice.time_extent), complex)
    for half in phi:
        spins = [contiguous(half[:, COLOURS * a :][:, :COLOURS]) for a in range(SPINS)]
        for a, b in np.ndindex(SPINS, SPINS):
            products[a, b] += as_numpy(slice_dots(spins[a], spins[b], lattice))
    return 2j * mu * np.einsum("gab,abnt->ngt", GAMMA5 @ np.array(gammas), products)
