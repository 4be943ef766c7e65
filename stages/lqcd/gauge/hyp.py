"""Hypercubic (HYP) smearing of gauge links (hep-lat/0103029), in all directions or in space alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from stages.base.errors import InputError
from stages.lqcd.gauge.reunitarise import polar_su3
from stages.lqcd.gauge.stout import ALL_DIRECTIONS, check_smearing
from stages.lqcd.kernels import block_blas, smearing
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.kernels.fields import copied, field_like
from stages.lqcd.lattice.geometry import Lattice


def hyp_links(
    links: Array,
    lattice: Lattice,
    alpha: Sequence[float],
    steps: int,
    directions: Sequence[int] = ALL_DIRECTIONS,
) -> Array:
    """Links after `steps` of HYP smearing, each of which mixes links within the hypercubes of a link alone.

    With V(mu, {}) = U_mu, and for a set of n directions S without mu,

        V(mu, S) = P[(1 - alpha_n) U_mu + alpha_n / (2 n) sum_{nu in S} staples of V(mu, S - nu) between
                     V(nu, S - nu)],

    a smeared link is V(mu, all other `directions`); P is the projection `polar_su3`. alpha: from the
    outermost level to the innermost, (alpha1, alpha2, alpha3) of the source in all directions, where it takes
    (0.75, 0.6, 0.3); (alpha2, alpha3) in space, where outer links have 4 staples and inner ones 2, as in
    Chroma. Links of other directions stay as they are and are in no staple.

    links: SU(3) ``[mu, parity, site, 3, 3]``, complex128, without boundary signs; the result is a new array,
    in SU(3) to rounding. Memory beside both: 11 links a site in space, 29 in all directions. InputError.
    """
    check_smearing(links, lattice, steps)
    if len(alpha) != len(directions) - 1 or not all(0 <= share <= 1 for share in alpha):
        raise InputError(
            f"alpha of HYP smearing in {len(directions)} directions is {len(directions) - 1} shares of the "
            f"staples, each 0 to 1, from the outermost level to the innermost, got {list(alpha)}"
        )
    smeared = copied(links)
    for _ in range(steps):
        blocking = _Blocking(copied(smeared), lattice, tuple(alpha))
        for mu in directions:
            blocking.decorate(smeared[mu], mu, frozenset(directions) - {mu})
    return smeared


@dataclass(frozen=True)
class _Blocking:
    """The links V(mu, S) of one step, the inner ones made once."""

    links: Array
    lattice: Lattice
    alpha: tuple[float, ...]
    blocked: dict[tuple[int, frozenset[int]], Array] = field(default_factory=dict)

    def decorate(self, blocked: Array, mu: int, planes: frozenset[int]) -> None:
        """Writes V(mu, planes) to `blocked`, ``[parity, site, 3, 3]``."""
        alpha = self.alpha[-len(planes)]
        weight = alpha / (2 * len(planes))
        block_blas.scale(self.links[mu], 1 - alpha, blocked)
        for nu in sorted(planes):
            along, across = (self._once(direction, planes - {nu}) for direction in (mu, nu))
            smearing.add_staple(blocked, along, across, self.lattice, mu, nu, weight)
        polar_su3(blocked, out=blocked)

    def _once(self, mu: int, planes: frozenset[int]) -> Array:
        if not planes:
            return self.links[mu]
        if (mu, planes) not in self.blocked:
            self.blocked[mu, planes] = field_like(self.links[mu])
            self.decorate(self.blocked[mu, planes], mu, planes)
        return self.blocked[mu, planes]
