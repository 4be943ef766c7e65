"""The disconnected current-current correlator of one configuration, from loops of different noise vectors.

C(t) = (1/3) sum_{i=x,y,z} (1/T) sum_{t0} J_i(t0 + t) J_i(t0)

in the normalisation of the loops, which is MILC's; what that leaves out is said in `NOT_INCLUDED`.

A product of two loops is biased when both come from the same noise. Where a loop is a sum of pieces (sloppy
solves, and the correction on fewer vectors), every pair of pieces A, B with N_A and N_B noise vectors, N_AB
of them common, is averaged over the pairs n != m:

    [ (sum_n A_n) (sum_m B_m) - sum_{n common} A_n B_n ] / (N_A N_B - N_AB)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from stages.base.errors import InputError
from stages.lqcd.estimators.truncated import Piece, check_pieces

SPATIAL = slice(0, 3)

NOT_INCLUDED = {
    "charges": "(1/3)^2, for each of light (u + d), strange, and light - strange",
    "Z_V": "renormalisation of the one-link current, squared",
    "taste": "(1/4)^2, the rooting of the two staggered loops",
    "operator": "(-2 i)^2 = -4: with the continuum-normalised m + D/2 a loop of the current is -2 i J",
    "volume": "1 / spatial volume, for a correlator of densities at zero momentum",
    "subtraction": "none is needed: <J> = 0 by charge conjugation",
}
"""What a physical result takes besides, in words, for the metadata of results."""


def disconnected_correlator(pieces: Sequence[Piece]) -> NDArray[np.float64]:
    """C(t) of the loop that is the sum of `pieces` (values ``[noise, direction, time]``), float64 ``[time]``.

    Raises InputError where there is no piece, and where one has fewer than two noise vectors, so
    that it has no pair of different ones.
    """
    check_pieces(pieces)
    for piece in pieces:
        if len(piece.noise) < 2:
            raise InputError(
                "a disconnected correlator multiplies loops of different noise vectors, "
                f"got {len(piece.noise)} vector: take at least 2, for the fine solves too"
            )
    pairs = [pair_correlation(a, b) for a in pieces for b in pieces]
    return np.sum(pairs, axis=0)[SPATIAL].mean(axis=0)


def pair_correlation(a: Piece, b: Piece) -> NDArray[np.float64]:
    """(1/T) sum_{t0} A(t0 + t) B(t0), averaged over the pairs n != m; ``[direction, time]``."""
    common = [number for number in a.noise if number in b.noise]
    all_pairs = time_correlation(a.values.sum(axis=0), b.values.sum(axis=0))
    same_noise = time_correlation(a.rows(common), b.rows(common)).sum(axis=0)
    return (all_pairs - same_noise) / (len(a.noise) * len(b.noise) - len(common))


def time_correlation(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    """(1/T) sum_{t0} a(t0 + t) b(t0) along the last axis, which is periodic; ``[..., time]``."""
    times = a.shape[-1]
    behind = sliding_window_view(np.concatenate([b, b], axis=-1), times, axis=-1)[..., times:0:-1, :]
    return np.einsum("...t,...st->...s", a, behind) / times
