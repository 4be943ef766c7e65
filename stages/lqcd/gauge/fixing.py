"""Estimates on a few planes of a gauge field: plaquette, and whether its gauge is fixed."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stages.lqcd.lattice.geometry import T, X, Y, Z


def planes_plaquette(links: NDArray, *, whole: bool) -> float:
    """Mean of Re tr P / 3 of links ``[t, z, y, x, mu, 3, 3]``: of a whole lattice, or only in x and y."""
    pairs = [(X, Y), *([(X, Z), (X, T), (Y, Z), (Y, T), (Z, T)] if whole else [])]
    return float(np.mean([_mean_trace(links, mu, nu) for mu, nu in pairs]))


def _mean_trace(links: NDArray, mu: int, nu: int) -> float:
    u, v = links[..., mu, :, :], links[..., nu, :, :]
    left, right = u @ np.roll(v, -1, axis=3 - mu), v @ np.roll(u, -1, axis=3 - nu)
    return float(np.einsum("...ij,...ij->...", left, right.conj()).real.mean() / 3)


def gauge_residual(links: NDArray) -> float:
    """Least residual of Coulomb and Landau gauge on planes, links ``[t, z, y, x, mu, 3, 3]``, t and z >= 2.

    theta = mean of tr D D^dag / 3, D = sum_mu [A_mu(x) - A_mu(x - mu)] over directions in space, or all, with
    the traceless A = (U - U^dag) / 2i, at t = 1 and z >= 1, whose neighbours are among the links. It is
    about 3 for a rough field in no gauge, and below 1e-5 in a fixed gauge (criterion of arXiv:1212.5221).
    """
    a = (links - np.swapaxes(links.conj(), -1, -2)) / 2j
    a = a - np.trace(a, axis1=-2, axis2=-1)[..., None, None] * np.eye(3) / 3
    behind = [np.roll(a[1], 1, axis=2), np.roll(a[1], 1, axis=1), np.roll(a[1], 1, axis=0), a[0]]
    parts = [(a[1] - before)[1:, :, :, mu] for mu, before in enumerate(behind)]
    space = parts[X] + parts[Y] + parts[Z]
    return min(float((abs(d) ** 2).sum(axis=(-2, -1)).mean() / 3) for d in (space, space + parts[T]))
