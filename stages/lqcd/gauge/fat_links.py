"""Fat links and long links of improved staggered fermions, summed over the staples of 3, 5 and 7 links."""

from __future__ import annotations

from dataclasses import dataclass

from stages.lqcd.kernels import block_blas, link_fields, smearing
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.kernels.fields import assign, field_like
from stages.lqcd.lattice.geometry import Lattice


@dataclass(frozen=True)
class Paths:
    """Coefficients: X = one U + three S3 + five S5 + seven S7 + lepage SL.

    S3, S5, S7: sums of all 6, 24, 48 staples of 3, 5, 7 links; SL: of the 6 straight five-link ones (+-2 nu).
    """

    one: float
    three: float
    five: float
    seven: float
    lepage: float = 0.0


def fat_links(links: Array, lattice: Lattice, paths: Paths) -> Array:
    """The sum of `paths` over **unitary** links ``[mu, parity, site, 3, 3]``, any signs already in them.

    Nested from the outside in (Horner's scheme), so that 12 staples per direction do for all 84 paths: with
    S_nu F the staple of F in the plane of nu and sigma, rho, nu the three directions other than mu,

        X = one' U + sum_sigma S_sigma [three U + lepage S_sigma U + sum_rho S_rho (five U + seven S_nu U)].

    Two staples in one plane are the straight ones and twice the link, U^dag U = 1 where a path goes back:
    hence one' = one - 6 lepage. Memory: the result and 5 fields of one direction.
    """
    fat = field_like(links)
    inner, innermost, *staples = (field_like(links, links.shape[1:]) for _ in range(5))
    for mu in range(4):
        link = links[mu]
        others = [nu for nu in range(4) if nu != mu]
        simple = dict(zip(others, staples, strict=True))
        for nu in others:
            assign(simple[nu], 0)
            smearing.add_staple(simple[nu], link, links[nu], lattice, mu, nu, 1.0)
        block_blas.scale(link, paths.one - 6 * paths.lepage, fat[mu])
        for sigma in others:
            smearing.weighted_sum(paths.three, link, paths.lepage, simple[sigma], inner)
            for rho in others:
                if rho != sigma:
                    (nu,) = {*others} - {sigma, rho}
                    smearing.weighted_sum(paths.five, link, paths.seven, simple[nu], innermost)
                    smearing.add_staple(inner, innermost, links[rho], lattice, mu, rho, 1.0)
            smearing.add_staple(fat[mu], inner, links[sigma], lattice, mu, sigma, 1.0)
    return fat


def long_links(links: Array, lattice: Lattice, coefficient: float) -> Array:
    """Products coefficient * U_mu(x) U_mu(x + mu) U_mu(x + 2 mu), ``[mu, parity, site, 3, 3]``."""
    long = field_like(links)
    link_fields.long_links(links, lattice, coefficient, long)
    return long
