"""APE smearing of gauge links (Albanese et al., Phys. Lett. B192 (1987) 163; weights of hep-lat/0607006)."""

from __future__ import annotations

from collections.abc import Sequence

from stages.base.errors import InputError
from stages.lqcd.gauge.reunitarise import polar_su3
from stages.lqcd.gauge.stout import ALL_DIRECTIONS, check_smearing
from stages.lqcd.kernels import block_blas, smearing
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.kernels.fields import copied
from stages.lqcd.lattice.geometry import Lattice


def ape_links(
    links: Array,
    lattice: Lattice,
    alpha: float,
    steps: int,
    directions: Sequence[int] = ALL_DIRECTIONS,
) -> Array:
    """Links after `steps` of U' = P[(1 - alpha) U + alpha / n C], P the projection `polar_su3`.

    C: the sum of the n = 2 (d - 1) staples of U in the planes of the d `directions`: n = 4 in space, 6 in
    all. Links of the other directions stay as they are and are in no staple. In Chroma's form P[c U + C],
    c = n (1 - alpha) / alpha. Short waves, damped by 1 - alpha p^2 / n with p^2 up to 4 d, grow where alpha
    exceeds 2/3 in space, 3/4 in all directions.

    links: SU(3) ``[mu, parity, site, 3, 3]``, complex128, without boundary signs; the result is a new array,
    in SU(3) to rounding. alpha: 0 to 1. Raises InputError.
    """
    check_smearing(links, lattice, steps)
    if not 0 <= alpha <= 1:
        raise InputError(f"alpha of APE smearing is a share of the staples, 0 to 1, got {alpha}")
    weight = alpha / (2 * (len(directions) - 1))
    smeared = copied(links)
    for _ in range(steps):
        before = copied(smeared)
        for mu in directions:
            block_blas.scale(smeared[mu], 1 - alpha, smeared[mu])
            for nu in directions:
                if nu != mu:
                    smearing.add_staple(smeared[mu], before[mu], before[nu], lattice, mu, nu, weight)
            polar_su3(smeared[mu], out=smeared[mu])
    return smeared
