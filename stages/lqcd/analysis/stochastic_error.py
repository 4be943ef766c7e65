"""The stochastic error of loops and of C(t) at a fixed gauge field, for the counts at hand and for others.

A loop is a sum of pieces A (sloppy solves, their correction, ...), each the mean over the first N_A noise
vectors, the counts nested. Per vector A_n = mean + dA_n, independent between vectors. With the symmetric form

    h_t(a, b) = (1/3) sum_i (1/T) sum_t0 [a_i(t0 + t) b_i(t0) + b_i(t0 + t) a_i(t0)] / 2

the pair estimator of C(t) (`stages.lqcd.analysis.disconnected`) is h(J, J) plus two uncorrelated parts
(Hoeffding, Ann. Math. Stat. 19 (1948) 293): one linear in the noise, 2 h(J, dA_n), and one of pairs n != m,
h(dA_n, dB_m). Their second moments are what `NoiseMoments` holds,

    linear    L_AB    = 4 cov(h(J, A_n), h(J, B_n)),
    quadratic G_ABCD  = <h(dA_n, dB_m) h(dC_n, dD_m)>, n != m,

and the variance of C(t) with counts N is sum L_AB / max(N_A, N_B), which falls like 1/N, plus the sum of G
with the weights of `pair_variance`, which falls like 1/N^2: for one piece 2 G / (N (N - 1)).

Where noise exceeds the mean loop the estimate of L fluctuates about nearly 0 and is negative as often as not.
Only the sum of both parts is bounded from below, after all averages: a bound on each would bias the error.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise, product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stages.base.errors import InputError
from stages.lqcd.analysis.disconnected import SPATIAL
from stages.lqcd.estimators.truncated import Piece, check_pieces

LEAST_VECTORS = 4
"""Below, G cannot be told from the means."""
LEAST_SHARE = 0.1
"""Least variance of C(t), as a share of its quadratic part: estimates of the linear part may be negative."""

Array = NDArray[np.float64]


class NoiseMoments(NamedTuple):
    """Moments of the noise of single vectors on one configuration, float64, lattice units."""

    loops: Array
    """Covariance of the pieces of one J_i(t), mean over spatial i and t, ``[piece, piece]``."""
    linear: Array
    """L, ``[piece, piece, time]``."""
    quadratic: Array
    """G, ``[piece, piece, piece, piece, time]``."""


def noise_moments(pieces: Sequence[Piece]) -> NoiseMoments:
    """Estimates from the pieces of a loop, values ``[noise, direction, time]``; vectors nested.

    `quadratic` is unbiased for any noise: from products of different vectors, with what vectors contribute
    singly projected out (for symmetric matrices the U-centring of Szekely and Rizzo, Ann. Stat. 42 (2014)
    2382). From `linear` the noise of the mean loop is taken off, exactly but for terms smaller by 1/N.
    Raises InputError for pieces that are not nested, or with fewer than 4 vectors.
    """
    values = _nested(pieces)
    counts = [len(rows) for rows in values]
    extent = values[0].shape[-1]
    halves = [_moments_at(values, counts, lag) for lag in range(extent // 2 + 1)]
    at_lag = [halves[min(lag, extent - lag)] for lag in range(extent)]  # h_t is h_(T - t)
    linear, quadratic = (np.stack(parts, axis=-1) for parts in zip(*at_lag, strict=True))
    flat = [rows.reshape(len(rows), -1) for rows in values]
    return NoiseMoments(_covariances(flat).mean(axis=-1), linear, quadratic)


def linear_moments(pieces: Sequence[Piece]) -> NoiseMoments:
    """Those of an estimate that is linear in its noise, values ``[noise, time]``: no pairs, `quadratic` is 0.

    `loops` is the mean over t. Raises InputError as `noise_moments`.
    """
    linear = _covariances([each[:, 0] for each in _nested(pieces, None)])
    count, times = len(linear), linear.shape[-1]
    return NoiseMoments(linear.mean(axis=-1), linear, np.zeros((*(count,) * 4, times)))


def noise_deviations(pieces: Sequence[Piece]) -> Array:
    """Rows ``[vector, ...]``, whose products summed over vectors are the covariances of an estimate's noise.

    pieces: one or two, nested, of an estimate that is linear in its noise, values ``[noise, ...]``. The sum
    of squares is the variance of `stages.lqcd.estimators.truncated.estimate`. Raises InputError without any.
    """
    check_pieces(pieces)
    first, *corrections = pieces
    number = len(first.noise)
    plain = (first.values - first.values.mean(axis=0)) / number / np.sqrt(number - 1)
    if not corrections:
        return plain * np.sqrt(number)
    (correction,) = corrections
    few = len(correction.noise)
    both = first.rows(correction.noise) / number + correction.values / few
    return np.concatenate(
        [(both - both.mean(axis=0)) * np.sqrt(few / (few - 1)), plain * np.sqrt(number - few)]
    )


def pair_deviations(pieces: Sequence[Piece], error: Array) -> Array:
    """`noise_deviations` ``[vector, time]`` of C(t) of a loop: what each vector adds, the others as they are.

    Of pairs of vectors both count in full, which makes variances too large: all are scaled to the unbiased
    `error` ``[time]`` (`correlator_variance`). Raises InputError as `noise_moments`.
    """
    values = _nested(pieces)
    extent = values[0].shape[-1]
    halves = [
        [np.sum([_with_others(rows, others, lag) for others in values], axis=0) for rows in values]
        for lag in range(extent // 2 + 1)
    ]
    at_lag = [halves[min(lag, extent - lag)] for lag in range(extent)]
    linear = [np.stack([each[k] for each in at_lag], axis=-1) for k in range(len(values))]
    deviation = noise_deviations([Piece(tuple(range(len(rows))), rows) for rows in linear])
    own = np.sqrt((deviation**2).sum(axis=0))
    return deviation * np.divide(error, own, out=np.zeros_like(own), where=own > 0)


def loop_variance(covariance: Array, counts: Sequence[float]) -> Array:
    """sum_AB cov_AB / max(N_A, N_B) of ``[piece, piece, ...]``, not below 0: of a sum of means.

    For sloppy and correction it is the formula of `stages.lqcd.estimators.truncated.truncated_estimate`.
    """
    return np.maximum(_linear_part(covariance, counts), 0.0)


def pair_variance(quadratic: Array, counts: Sequence[float]) -> Array:
    """The share of pairs in the variance of C(t), from G ``[piece, piece, piece, piece, ...]``.

    A, B are averaged over N_A N_B - min(N_A, N_B) pairs n != m; two such averages share (p r - min(p, r)) of
    them, p = min(N_A, N_C), r = min(N_B, N_D), and as many with n and m exchanged. An estimate of several
    pieces may be negative.
    """
    number = np.asarray(counts, float)
    least = np.minimum.outer(number, number)
    pairs = np.multiply.outer(number, number) - least
    p, r = least[:, None, :, None], least[None, :, None, :]
    shared = p * r - np.minimum(p, r)
    weights = 2 * shared / np.multiply.outer(pairs, pairs)
    return np.tensordot(weights, quadratic, axes=4)


def total_variance(linear: Array, quadratic: Array, counts: Sequence[float], least: float) -> Array:
    """Variance of C(t) from both parts, of L ``[piece, piece, ...]`` and G, averaged as the result is used.

    Not below `least` times the pairs' part.
    """
    pairs = pair_variance(quadratic, counts)
    return np.maximum(_linear_part(linear, counts) + pairs, least * np.abs(pairs))


def correlator_variance(moments: NoiseMoments, counts: Sequence[float]) -> Array:
    """Variance of C(t) ``[time]`` on this configuration with `counts` noise vectors of each piece."""
    return total_variance(moments.linear, moments.quadratic, counts, LEAST_SHARE)


def _linear_part(covariance: Array, counts: Sequence[float]) -> Array:
    """sum_AB cov_AB / max(N_A, N_B) of ``[piece, piece, ...]``."""
    number = np.asarray(counts, float)
    return np.tensordot(1 / np.maximum.outer(number, number), covariance, axes=2)


def _nested(pieces: Sequence[Piece], part: slice | None = SPATIAL) -> list[Array]:
    """Spatial values ``[noise, direction, time]`` of each piece, in an order that makes each a first part.

    part: of the axis after the noise; None puts one there.
    """
    check_pieces(pieces)
    for larger, smaller in pairwise(pieces):
        if strangers := sorted(set(smaller.noise) - set(larger.noise)):
            raise InputError(f"noise vectors {strangers} of a correction are not among the sloppy ones")
    if len(pieces[-1].noise) < LEAST_VECTORS:
        raise InputError(
            f"the stochastic error of a correlator needs at least {LEAST_VECTORS} noise vectors, "
            f"got {len(pieces[-1].noise)}: take more, of the fine solves too"
        )
    order = sorted(pieces[0].noise, key=lambda n: (-sum(n in piece.noise for piece in pieces), n))
    return [piece.rows(order[: len(piece.noise)])[:, part] for piece in pieces]


def _moments_at(values: Sequence[Array], counts: Sequence[int], lag: int) -> tuple[Array, Array]:
    """L ``[piece, piece]`` and G ``[piece, piece, piece, piece]`` at one t."""
    quadratic = _quadratic(values, counts, lag)
    singly = [np.sum([_with_others(rows, others, lag) for others in values], axis=0) for rows in values]
    larger = np.maximum.outer(np.asarray(counts, float), counts)
    noise = (1 + 1 / larger) ** 2 * (larger - 2) / (larger - 1) ** 2
    return 4 * (_covariances(singly) - np.einsum("acbd,cd->ab", quadratic, noise)), quadratic


def _with_others(rows: Array, others: Array, lag: int) -> Array:
    """h_t(a_n - mean a, mean of b over the vectors m != n), ``[n]``."""
    centred, total = rows - rows.mean(axis=0), np.broadcast_to(others.sum(axis=0), rows.shape).copy()
    both = min(len(rows), len(others))
    total[:both] -= others[:both]
    total /= np.where(np.arange(len(rows)) < both, len(others) - 1, len(others))[:, None, None]
    return (_shifted(centred, lag) * total).sum(axis=(1, 2))


def _quadratic(values: Sequence[Array], counts: Sequence[int], lag: int) -> Array:
    """Each G from the vectors that all its pieces have."""
    number = len(values)
    means = np.empty((number,) * 4)
    for common in set(counts):
        have = [k for k in range(number) if counts[k] >= common]
        forms = np.array([[_form(values[a][:common], values[b][:common], lag) for b in have] for a in have])
        products = _products_of_pairs(forms)
        for a, b, c, d in product(range(len(have)), repeat=4):
            whole = tuple(have[k] for k in (a, b, c, d))
            if min(counts[k] for k in whole) == common:
                means[whole] = products[a, b, c, d]
    return means


def _form(a: Array, b: Array, lag: int) -> Array:
    """h_t(a_n, b_m) ``[n, m]`` of values ``[n, direction, time]`` and ``[m, direction, time]``."""
    return _shifted(a, lag).reshape(len(a), -1) @ b.reshape(len(b), -1).T


def _shifted(a: Array, lag: int) -> Array:
    """The factor that h_t(a, b) multiplies b with, value by value."""
    times, twice = a.shape[2], np.concatenate([a, a], axis=2)
    both = twice[..., times - lag : 2 * times - lag] + twice[..., lag : lag + times]
    return both / (2 * a.shape[1] * times)


def _products_of_pairs(forms: Array) -> Array:
    """Mean over n != m of the products of ``[A, B, n, m]`` with each other, without single vectors' parts.

    Symmetric and antisymmetric parts lose N of N (N - 1) / 2 degrees of freedom, and N - 1.
    """
    number, axes = forms.shape[-1], forms.shape[:2]
    off = 1 - np.eye(number)
    symmetric, antisymmetric = ((forms + sign * np.swapaxes(forms, -1, -2)) / 2 * off for sign in (1, -1))
    rows = symmetric.sum(axis=-1) / (number - 2)
    mean = rows.sum(axis=-1) / (number - 1)
    symmetric = (symmetric - rows[..., :, None] - rows[..., None, :] + mean[..., None, None]) * off
    rows = antisymmetric.sum(axis=-1) / number
    antisymmetric = (antisymmetric - rows[..., :, None] + rows[..., None, :]) * off
    result = np.zeros((*axes, *axes))
    for part, freedom in (
        (symmetric, number * (number - 3)),
        (antisymmetric, (number - 1) * (number - 2)),
    ):
        flat = part.reshape(axes[0] * axes[1], -1)
        result += (flat @ flat.T).reshape(result.shape) / freedom
    return result


def _covariances(values: Sequence[Array]) -> Array:
    """Sample covariances ``[piece, piece, ...]`` of ``[noise, ...]``, each over the vectors both have."""
    covariances = np.empty((len(values), len(values), *values[0].shape[1:]))
    for (i, a), (j, b) in product(enumerate(values), repeat=2):
        common = min(len(a), len(b))
        deviations = [rows[:common] - rows[:common].mean(axis=0) for rows in (a, b)]
        covariances[i, j] = (deviations[0] * deviations[1]).sum(axis=0) / (common - 1)
    return covariances
