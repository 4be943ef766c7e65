"""Vector currents of staggered quarks and the Goldstone pion: operators of connected correlators.

With M = 2 m + D, D = sum_mu [F_mu - F_mu^dag + L_mu - L_mu^dag] of the one-hop and three-hop parts

    (F_mu psi)(x) = fat_mu(x) psi(x + mu),   (L_mu psi)(x) = long_mu(x) psi(x + 3 mu)

(phases, boundary signs and naik_epsilon in the links) and epsilon(x) = (-1)^(x+y+z+t), the operators O are

    G5-G5   epsilon                             the Goldstone pion
    GX-GX   epsilon (-1)^x                      the local vector current, and GY-GY, GZ-GZ
    GX-G1   (1/2) (U_x + U_x^dag)               the one-link taste-singlet, thin U, and GY-G1, GZ-G1
    CX      (1/2) [F + F^dag + 3 (L + L^dag)]   the conserved current, summed over space, and CY, CZ

The conserved current of a bond (x, x + mu) is that of all hops that pass it: the fat hop from x, the long
hops from x, x - mu and x - 2 mu. With J_mu(x) the sum of (hop + hop^dag) and Delta_x the projection on x,

    sum_mu [J_mu(x) - J_mu(x - mu)] = [Delta_x, M],

so that its charge needs no renormalisation. J_mu(x) is -i times the derivative of M by the angle a of a U(1)
link exp(i a) on that bond, and K of `contact_term` minus the second derivative.

All are Hermitian. They are kept as O' = epsilon O: a sign of each site, or D of links epsilon V, since F +
F^dag = epsilon [epsilon F - (epsilon F)^dag]. No charge, volume or taste factor is in them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from stages.base.errors import InputError
from stages.lqcd.dirac.staggered import StaggeredDslash
from stages.lqcd.gauge.hisq import StaggeredLinks
from stages.lqcd.kernels import block_blas, slice_products
from stages.lqcd.kernels.dispatch import Array, to_device_like
from stages.lqcd.kernels.fields import contiguous, field_like, zeros_like
from stages.lqcd.lattice.geometry import DIRECTIONS, EVEN, ODD, Lattice, T

EPSILON = (1, -1)
"""Of even and odd sites."""

LABELS = ("G5-G5", "GX-GX", "GY-GY", "GZ-GZ", "GX-G1", "GY-G1", "GZ-G1", "CX", "CY", "CZ")
"""Operators that `vector_current` makes."""


@dataclass(frozen=True)
class SiteCurrent:
    """A local operator; signs: those of O' = epsilon O, float64 ``[parity, site]`` on the host."""

    label: str
    lattice: Lattice
    signs: NDArray[np.float64]
    _tables: dict[tuple[int, type, np.dtype], Array] = field(default_factory=dict, repr=False, compare=False)

    hops = 0

    def primed_to(self, parity: int, x: Array, out: Array | None = None) -> Array:
        """O' x on the sites of a parity, ``[site, 3, N]``, x on the same ones; out may be x."""
        key = parity, type(x), x.dtype
        if key not in self._tables:
            table = site_table(self.signs[parity], self.lattice).astype(x.dtype)
            self._tables[key] = to_device_like(table, x)
        out = field_like(x) if out is None else out
        slice_products.weighted(by_slice(x, self.lattice), self._tables[key], by_slice(out, self.lattice))
        return out


@dataclass(frozen=True)
class HopCurrent:
    """An operator of hops along one direction; dslash: O' = epsilon O, links along mu only."""

    label: str
    dslash: StaggeredDslash
    mu: int

    hops = 1

    @property
    def lattice(self) -> Lattice:
        return self.dslash.lattice

    def primed_to(self, parity: int, x: Array, out: Array | None = None) -> Array:
        """O' x on the sites of a parity, ``[site, 3, N]``, x on the opposite ones; out is not x."""
        return self.dslash.astype(x.dtype).apply_to(parity, x, out)


Current = SiteCurrent | HopCurrent
"""`hops`: 0 or 1, whether O takes a parity to the other one."""


def applied(current: Current, x: Array) -> Array:
    """O x of a field ``[parity, site, 3, N]``, a new one."""
    out = primed(current, x)
    block_blas.scale(out[ODD], EPSILON[ODD], out[ODD])
    return out


def primed(current: Current, x: Array) -> Array:
    """O' x = epsilon O x of a field ``[parity, site, 3, N]``, a new one."""
    out = field_like(x)
    for parity in (EVEN, ODD):
        current.primed_to(parity, x[parity ^ current.hops], out[parity])
    return out


def source_of(current: Current, b: Array) -> Array:
    """O'^dag b = O epsilon b, ``[parity, site, 3, N]``: O' b of a local operator, - O' b of one with hops."""
    out = primed(current, b)
    return block_blas.scale(out, -1.0, out) if current.hops else out


def vector_current(links: StaggeredLinks, label: str) -> Current:
    """The operator of one of `LABELS`. Raises InputError for another one.

    links: of the quark, naik_epsilon in them; thin links are made of their configuration where wanted.
    """
    found = re.fullmatch("G5-G5|G([XYZ])-G(?:1|\\1)|C([XYZ])", label)
    if not found:
        raise InputError(f"an operator of connected correlators is one of {', '.join(LABELS)}, got {label!r}")
    axis = found[1] or found[2]
    if axis is None:
        return pion(links.lattice)
    mu = "XYZ".index(axis)
    if found[2]:
        return conserved_vector(links, mu)
    return (
        one_link_vector(links, mu, links.thin()) if label.endswith("1") else local_vector(links.lattice, mu)
    )


def pion(lattice: Lattice) -> SiteCurrent:
    """O = epsilon."""
    return SiteCurrent("G5-G5", lattice, np.ones((2, lattice.half_volume)))


def local_vector(lattice: Lattice, mu: int) -> SiteCurrent:
    """O = epsilon (-1)^x_mu, mu in space. Raises InputError for another mu."""
    axis = _axis(mu)
    odd = np.stack([lattice.coordinates(parity)[:, mu] % 2 for parity in (EVEN, ODD)])
    return SiteCurrent(f"G{axis}-G{axis}", lattice, np.where(odd, -1.0, 1.0))


def one_link_vector(links: StaggeredLinks, mu: int, thin: Array) -> HopCurrent:
    """O = (1/2) (U_mu + U_mu^dag), U_mu f(x) = thin_mu(x) f(x + mu), mu in space.

    thin: links of the current with phases, ``[mu, parity, site, 3, 3]`` complex128: `links.thin()`, or others
    (`stages.lqcd.estimators.trace.current_links`). Raises InputError for another mu.
    """
    half = np.full((2, links.lattice.half_volume), 0.5)
    return HopCurrent(f"G{_axis(mu)}-G1", _hops(replace(links, fat=thin, long=None), mu, _signed(half)), mu)


def conserved_vector(
    links: StaggeredLinks, mu: int, weights: NDArray[np.float64] | None = None
) -> HopCurrent:
    """O = (1/2) sum_x w(x) J_mu(x), half the conserved current, of M's fat and long links.

    weights: w, real ``[parity, site]`` on the host, of the bonds (x, x + mu); one unless given. That of one
    slice and mu = 3 is half the charge Q(t): G (Q(t) - Q(t - 1)) G = G P_t - P_t G, P_t the projection on it.
    """
    w = np.ones((2, links.lattice.half_volume)) if weights is None else weights
    one, three = _signed(0.5 * w), _signed(0.5 * _passing(w, links.lattice, mu))
    return HopCurrent(f"C{DIRECTIONS[mu].upper()}", _hops(links, mu, one, three), mu)


def contact_term(
    links: StaggeredLinks,
    mu: int,
    first: NDArray[np.float64] | None = None,
    second: NDArray[np.float64] | None = None,
) -> StaggeredDslash:
    """(1/4) sum_{x, z} w(x) w'(z) K_mu(x, z), K the sum of (hop - hop^dag) over hops that pass both bonds.

    first, second: w, w' as `weights` of `conserved_vector`, whose halves it fits: with O and O' of w and w'
    the polarisation tensor is

        Tr O G O' G - Tr K G     (mu of both the same; without K otherwise),

    of which the divergence vanishes at every site, that of the source included. Summed over a slice, w = w' =
    1, mu in space, K = (1/4) [F - F^dag + 9 (L - L^dag)]: it enters C(t) at t = 0 only. `apply_to` of the
    result is K psi on a parity, of psi on the opposite one.
    """
    lattice = links.lattice
    w, other = (np.ones((2, lattice.half_volume)) if each is None else each for each in (first, second))
    three = 0.25 * _passing(w, lattice, mu) * _passing(other, lattice, mu)
    return _hops(links, mu, 0.25 * w * other, three)


def by_slice(x: Array, lattice: Lattice) -> Array:
    """A half field ``[site, 3, N]`` as ``[time, 2, site, 3, N]``, a view: two parts of each slice."""
    return x.reshape(lattice.time_extent, 2, lattice.sites_per_slice // 2, *x.shape[1:])


def site_table(numbers: NDArray, lattice: Lattice) -> NDArray:
    """Numbers of the sites of a parity as ``[time, 2, site]``, as `by_slice` has them."""
    return np.ascontiguousarray(numbers.reshape(lattice.time_extent, 2, -1))


def _hops(
    links: StaggeredLinks, mu: int, one: NDArray[np.float64], three: NDArray[np.float64] | None = None
) -> StaggeredDslash:
    """D of these links along mu only, times numbers ``[parity, site]`` of where their hops begin."""
    fat = _along(links.fat, links.lattice, mu, one)
    long = None if links.long is None or three is None else _along(links.long, links.lattice, mu, three)
    return StaggeredDslash(replace(links, fat=fat, long=long))


def _along(links: Array, lattice: Lattice, mu: int, numbers: NDArray[np.float64]) -> Array:
    out = zeros_like(links)
    for parity in (EVEN, ODD):
        table = to_device_like(site_table(numbers[parity], lattice).astype(complex), links)
        matrices, made = (by_slice(each[mu, parity], lattice) for each in (contiguous(links), out))
        slice_products.weighted(matrices, table, made)
    return out


def _signed(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Epsilon times numbers ``[parity, site]``."""
    return np.array(EPSILON)[:, None] * numbers


def _passing(w: NDArray[np.float64], lattice: Lattice, mu: int) -> NDArray[np.float64]:
    """w(x) + w(x + mu) + w(x + 2 mu): the bonds that a long hop from x passes."""
    near, far = (
        np.stack([w[parity ^ hops % 2][lattice.neighbour(parity, mu, hops)] for parity in (EVEN, ODD)])
        for hops in (1, 2)
    )
    return w + near + far


def _axis(mu: int) -> str:
    if mu not in range(T):
        raise InputError(f"a current of correlators in time lies along mu = 0, 1, 2, got {mu}")
    return DIRECTIONS[mu].upper()
