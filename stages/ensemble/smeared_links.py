"""The stage that smears a configuration's links in space, for the Laplacian and for displacements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real

from pipeline import At, stage
from stages.base.errors import InputError
from stages.ensemble.configuration import GaugeLinks, links_cost
from stages.lqcd.gauge.ape import ape_links
from stages.lqcd.gauge.hyp import hyp_links
from stages.lqcd.gauge.origin import Origin
from stages.lqcd.gauge.reunitarise import to_su3_or_open
from stages.lqcd.gauge.stout import SPATIAL_DIRECTIONS, stout_links
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.lattice.geometry import Lattice

KINDS = {"stout": "rho", "ape": "alpha", "hyp": "alpha"}
"""The weight that each kind of smearing takes."""


@dataclass(frozen=True, eq=False)
class SmearedLinks:
    """Links U_mu(x) in SU(3) without boundary signs, complex128 ``[mu, parity, site, 3, 3]``.

    Those in space are smeared within their time slice, those in time are thin.
    """

    links: Array
    lattice: Lattice


@stage(version="1", over=("config",), transient=True, resident=True, cost=links_cost)
def smeared_links(
    gauge: GaugeLinks,
    *,
    at: At,
    kind: str,
    steps: int,
    rho: float | None = None,
    alpha: float | Sequence[float] | None = None,
) -> SmearedLinks:
    """Links smeared in space, made once per configuration and worker; reunitarised first.

    kind: 'stout' with rho (`stages.lqcd.gauge.stout`), 'ape' with alpha (`stages.lqcd.gauge.ape`), or 'hyp'
    with alpha = [alpha2, alpha3], of the outer and the inner level (`stages.lqcd.gauge.hyp`). 0 steps: thin
    links. Raises InputError.
    """
    check_weights(kind, rho=rho, alpha=alpha)
    links = Origin(gauge.links, at.backend).fetched()
    thin, deviation = to_su3_or_open(links, gauge.lattice)
    at.record(reunitarisation_deviation=deviation)
    common = {"steps": steps, "directions": SPATIAL_DIRECTIONS}
    if kind == "stout":
        links = stout_links(thin, gauge.lattice, rho, **common)  # type: ignore[arg-type]
    elif kind == "ape":
        links = ape_links(thin, gauge.lattice, alpha, **common)  # type: ignore[arg-type]
    else:
        links = hyp_links(thin, gauge.lattice, alpha, **common)  # type: ignore[arg-type]
    return SmearedLinks(links, gauge.lattice)


def check_weights(kind: str, **weights: float | Sequence[float] | None) -> None:
    """Raises InputError for another kind than those of `KINDS`, or weights that are not the kind's."""
    if kind not in KINDS:
        raise InputError(f"kind of smearing must be one of {', '.join(KINDS)}, got {kind!r}")
    names = [name for name, value in weights.items() if value is not None]
    if names != [KINDS[kind]]:
        raise InputError(
            f"{kind} smearing takes {KINDS[kind]} and nothing else, got {', '.join(names) or 'nothing'}"
        )
    weight = weights[KINDS[kind]]
    numbers = weight if isinstance(weight, Sequence) else [weight]
    if (kind == "hyp") != (numbers is weight) or not all(isinstance(number, Real) for number in numbers):
        takes = "two numbers, [alpha2, alpha3]" if kind == "hyp" else "one number"
        raise InputError(f"{KINDS[kind]} of {kind} smearing is {takes}, got {weight}")
