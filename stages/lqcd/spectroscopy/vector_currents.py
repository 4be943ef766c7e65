"""Vector currents of staggered quarks and the Goldstone pion: operators of connected correlators.

With M = 2 m + D, D = sum_mu [F_mu - F_mu^dag + L_mu - L_mu^dag] of the one-hop and three-hop parts

    (F_mu psi)(x) = fat_mu(x) psi(x + mu),   (L_mu psi)(x) = long_mu(x) psi(x + 3 mu)

(phases, boundary signs and naik_epsilon in the links) and epsilon(x) = (-1)^(x+y+z+t), the operators O are

    G5-G5   epsilon                             the Goldstone pion
    GX-GX   epsilon (-1)^x                      the local vector current; GY-GY, GZ-GZ
    GX-G1   (1/2) (U_x + U_x^dag)               the one-link taste singlet, thin U; GY-G1, GZ-G1
    CX      (1/2) [F + F^dag + 3 (L + L^dag)]   the conserved current, summed over space; CY, CZ

all Hermitian, without factors of charge, volume or taste. The conserved current J_mu(x) of a bond (x, x + mu)
is the sum of (hop + hop^dag) over the hops that pass it, the fat one from x, the long ones from x, x - mu and
x - 2 mu. With Delta_x the projection on the site x,

    sum_mu [J_mu(x) - J_mu(x - mu)] = [Delta_x, M],

so that its charge needs no renormalisation. It is -i times the derivative of M by the angle a of a U(1) link
exp(i a) on the bond, and K of `contact_term` is minus the second derivative.

An operator is kept as O' = epsilon O: a sign of each site, or D of links epsilon V, since F + F^dag = epsilon
[epsilon F - (epsilon F)^dag].
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from stages.base.errors import InputError
from stages.lqcd.dirac.staggered import StaggeredDslash
from stages.lqcd.gauge.hisq import StaggeredLinks
from stages.lqcd.kernels import slice_products
from stages.lqcd.kernels.dispatch import Array, to_device_like
from stages.lqcd.kernels.fields import contiguous, field_like, zeros_like
from stages.lqcd.lattice.geometry import DIRECTIONS, EVEN, ODD, Lattice, T

EPSILON = (1, -1)
"""Of even and odd sites."""
EPSILON_COLUMN = np.array(EPSILON)[:, None]
Bonds = NDArray[np.float64]
"""A number for each bond (x, x + mu), or hop that begins at x: ``[parity, site]``."""

CURRENTS = {
    "pion": ("G5-G5",),
    "local": ("GX-GX", "GY-GY", "GZ-GZ"),
    "one_link": ("GX-G1", "GY-G1", "GZ-G1"),
    "conserved": ("CX", "CY", "CZ"),
}
"""Operators of each current, by direction."""
LABELS = tuple(label for labels in CURRENTS.values() for label in labels)


def hops_of(label: str) -> int:
    """Hops of the operator of a label, 0 or 1."""
    return int(label.startswith("C") or label.endswith("1"))


@dataclass(frozen=True)
class Current:
    """O, an operator on fields ``[parity, site, 3, N]``; hops: 0 or 1, whether it changes the parity."""

    label: str
    lattice: Lattice

    hops = 0

    def primed_to(self, parity: int, x: Array, out: Array | None = None, sign: float = 1.0) -> Array:
        """Sign O' x on the sites of a parity, ``[site, 3, N]``, x on those of parity ^ hops."""
        raise NotImplementedError

    def apply(self, x: Array) -> Array:
        """O x of a field, a new one."""
        return self._filled(x, EPSILON)

    def at_source(self, b: Array) -> Array:
        """O'^dag b = O epsilon b of a source, a new field: - O' b of an operator with hops."""
        return self._filled(b, (-1, -1) if self.hops else (1, 1))

    def _filled(self, x: Array, signs: tuple[int, int]) -> Array:
        out = field_like(x)
        for parity in (EVEN, ODD):
            self.primed_to(parity, x[parity ^ self.hops], out[parity], signs[parity])
        return out


@dataclass(frozen=True)
class SiteCurrent(Current):
    """A local operator; signs: those of O' = epsilon O, float64 ``[parity, site]`` on the host."""

    signs: NDArray[np.float64]
    _tables: dict[tuple, Array] = field(default_factory=dict, repr=False, compare=False)

    def primed_to(self, parity: int, x: Array, out: Array | None = None, sign: float = 1.0) -> Array:
        key = parity, sign, type(x), x.dtype
        if key not in self._tables:
            table = site_table(sign * self.signs[parity], self.lattice).astype(x.dtype)
            self._tables[key] = to_device_like(table, x)
        out = field_like(x) if out is None else out
        slice_products.weighted(by_slice(x, self.lattice), self._tables[key], by_slice(out, self.lattice))
        return out


@dataclass(frozen=True)
class HopCurrent(Current):
    """An operator of hops; dslash: O' = epsilon O, of links along mu only."""

    dslash: StaggeredDslash
    mu: int

    hops = 1

    def primed_to(self, parity: int, x: Array, out: Array | None = None, sign: float = 1.0) -> Array:
        return self.dslash.astype(x.dtype).apply_to(parity, x, out, b=sign)


def vector_currents(links: StaggeredLinks, labels: Sequence[str]) -> Iterator[Current]:
    """Operators of `LABELS` one after the other, for quarks of these links; thin links are made once."""
    thin = links.thin() if any(label.endswith("1") for label in labels) else None
    for label in labels:
        yield vector_current(links, label, thin)


def vector_current(links: StaggeredLinks, label: str, thin: Array | None = None) -> Current:
    """The operator of one of `LABELS`, for quarks of these links; thin: `links.thin()`. Raises InputError."""
    if not isinstance(links, StaggeredLinks):
        raise InputError(f"a current takes staggered links, as hisq(...).links, got {type(links).__name__}")
    if label not in LABELS:
        raise InputError(f"an operator of connected correlators is one of {', '.join(LABELS)}, got {label!r}")
    if label == "G5-G5":
        return local_current(links.lattice)
    mu = "XYZ".index(label.lstrip("GC")[0])
    if label.startswith("C"):
        return conserved_vector(links, mu)
    if label.endswith("1"):
        return one_link_vector(links, mu, links.thin() if thin is None else thin)
    return local_current(links.lattice, mu)


def local_current(lattice: Lattice, mu: int | None = None) -> SiteCurrent:
    """O = epsilon (-1)^x_mu, mu in space, and without mu epsilon, the pion. Raises InputError."""
    axis, signs = "5" if mu is None else _axis(mu), np.ones((2, lattice.half_volume))
    if mu is not None:
        for parity in (EVEN, ODD):
            signs[parity] -= 2 * (lattice.coordinates(parity)[:, mu] % 2)
    return SiteCurrent(f"G{axis}-G{axis}", lattice, signs)


def one_link_vector(links: StaggeredLinks, mu: int, thin: Array) -> HopCurrent:
    """O = (1/2) (U_mu + U_mu^dag), (U_mu psi)(x) = thin_mu(x) psi(x + mu), mu in space. Raises InputError.

    thin: links of the current with phases and signs of M, complex128 ``[mu, parity, site, 3, 3]``:
    `links.thin()`, or others (`stages.lqcd.estimators.trace.current_links`).
    """
    axis, lattice = _axis(mu), links.lattice
    one = 0.5 * EPSILON_COLUMN * _bonds(None, lattice)
    return HopCurrent(f"G{axis}-G1", lattice, _hops(replace(links, fat=thin, long=None), mu, one, one), mu)


def conserved_vector(links: StaggeredLinks, mu: int, weights: Bonds | None = None) -> HopCurrent:
    """O = (1/2) sum_x w(x) J_mu(x), half the conserved current, of M's fat and long links.

    weights: w of the bonds (x, x + mu), real ``[parity, site]`` on the host; one unless given. Twice O of the
    bonds along t that leave a slice is its charge Q(t): G (Q(t) - Q(t - 1)) G = G P_t - P_t G. Raises
    InputError for another mu or shape.
    """
    axis, lattice = _axis(mu, DIRECTIONS), links.lattice
    w = _bonds(weights, lattice)
    one, three = (0.5 * EPSILON_COLUMN * each for each in (w, _passing(w, lattice, mu)))
    return HopCurrent(f"C{axis}", lattice, _hops(links, mu, one, three), mu)


def contact_term(
    links: StaggeredLinks, mu: int, first: Bonds | None = None, second: Bonds | None = None
) -> StaggeredDslash:
    """(1/4) sum_{x, z} w(x) w'(z) K_mu(x, z), K the sum of (hop - hop^dag) over hops that pass both bonds.

    first, second: w and w', as `weights` of the two operators O, O' of `conserved_vector`, with which

        Tr O G O' G - Tr K G   (both along mu; without K along two directions)

    has no divergence at any site, that of the source included. `apply_to` of the result is K psi on a parity,
    of psi on the other one. For w = w' = 1 on a slice, K = (1/4) [F - F^dag + 9 (L - L^dag)] enters C at t =
    0 only. Raises InputError as `conserved_vector`.
    """
    _axis(mu, DIRECTIONS)
    w, other = (_bonds(each, links.lattice) for each in (first, second))
    three = _passing(w, links.lattice, mu) * _passing(other, links.lattice, mu)
    return _hops(links, mu, 0.25 * w * other, 0.25 * three)


def by_slice(x: Array, lattice: Lattice) -> Array:
    """A half field ``[site, 3, N]`` as ``[time, 2, site, 3, N]``, a view: two parts of each slice."""
    return x.reshape(lattice.time_extent, 2, lattice.sites_per_slice // 2, *x.shape[1:])


def site_table(numbers: NDArray, lattice: Lattice) -> NDArray:
    """Numbers of the sites of a parity as ``[time, 2, site]``, as `by_slice` has them."""
    return np.ascontiguousarray(numbers.reshape(lattice.time_extent, 2, -1))


def _hops(links: StaggeredLinks, mu: int, one: Bonds, three: Bonds) -> StaggeredDslash:
    """D of the links along mu only, times numbers of the sites where one and three hops begin."""
    fat = _along(links.fat, links.lattice, mu, one)
    long = None if links.long is None else _along(links.long, links.lattice, mu, three)
    return StaggeredDslash(replace(links, fat=fat, long=long))


def _along(links: Array, lattice: Lattice, mu: int, numbers: Bonds) -> Array:
    links, out = contiguous(links), zeros_like(links)
    for parity in (EVEN, ODD):
        table = to_device_like(site_table(numbers[parity], lattice).astype(complex), links)
        matrices, made = (by_slice(each[mu, parity], lattice) for each in (links, out))
        slice_products.weighted(matrices, table, made)
    return out


def _bonds(weights: Bonds | None, lattice: Lattice) -> Bonds:
    shape = (2, lattice.half_volume)
    if weights is not None and weights.shape != shape:
        raise InputError(f"weights of bonds on {lattice} have the shape {shape}, got {weights.shape}")
    return np.ones(shape) if weights is None else weights


def _passing(w: Bonds, lattice: Lattice, mu: int) -> Bonds:
    """w(x) + w(x + mu) + w(x + 2 mu): of the bonds that a long hop from x passes."""
    near, far = (
        np.stack([w[parity ^ hops % 2][lattice.neighbour(parity, mu, hops)] for parity in (EVEN, ODD)])
        for hops in (1, 2)
    )
    return w + near + far


def _axis(mu: int, directions: tuple[str, ...] = DIRECTIONS[:T]) -> str:
    if mu not in range(len(directions)):
        names = ", ".join(directions)
        raise InputError(f"mu of this current is 0 to {len(directions) - 1} ({names}), got {mu}")
    return directions[mu].upper()
