"""The stage that turns a gauge configuration into a Wilson-clover operator, on the device that solves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline import At, Cost, Keyed, Node, stage
from stages.base.errors import InputError
from stages.ensemble.configuration import GaugeLinks
from stages.ensemble.expected_solves import ANY_SOLVES, SOLVES, ExpectedSolves
from stages.lqcd.dirac.wilson import WilsonDslash, WilsonOperator, mass_of_kappa
from stages.lqcd.gauge.origin import Origin
from stages.lqcd.gauge.reunitarise import to_su3_or_open
from stages.lqcd.gauge.stout import ALL_DIRECTIONS, SPATIAL_DIRECTIONS, stout_links
from stages.lqcd.gauge.wilson_links import NO_TWIST, Anisotropy, wilson_links
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.kernels.link_forms import Packing, WilsonForm, wilson_bytes
from stages.lqcd.lattice.geometry import Lattice
from stages.lqcd.lattice.sizes import COMPLEX, links_bytes
from stages.shared.costs import of_lattice
from stages.shared.work import links_work

CLOVER_BYTES = 36 * COMPLEX
"""Of A or its inverse on a site in double: two Hermitian 6 x 6 matrices. With a twisted mass twice that."""


@dataclass(frozen=True)
class Hops:
    """Weights and smearing of the links of M.

    xi0, nu: bare anisotropy and speed of light. stout: {rho, steps, spatial}, in space alone where `spatial`
    is true; thin links unless given.
    """

    xi0: float = 1.0
    nu: float = 1.0
    stout: Mapping[str, Any] | None = None


def operator_bytes(lattice: Lattice, precision: str, packing: Packing | None, clover: int = 1) -> int:
    """Bytes of an operator as it stays: link fields, packed links of SU(3), A and its inverse.

    precision: of the solves, 'double', or another one, in whose inner ones only A^-1 is read. packing: on a
    GPU; None on the host, where there is one form. clover: what `has_clover` says.
    """
    return sum(operator_terms(lattice, precision, packing, clover).values())


def operator_terms(
    lattice: Lattice, precision: str, packing: Packing | None, clover: int = 1, su3: bool = True
) -> dict[str, int]:
    """`operator_bytes` by what they hold; su3: whether two rows of a link give the third."""
    forms = [packing.wilson(each) if packing else WilsonForm.MATRICES for each in ("double", "single")]
    forms = [WilsonForm.MATRICES if form is WilsonForm.TWO_ROWS and not su3 else form for form in forms]
    double, single = (wilson_bytes(lattice, *each) for each in zip(("double", "single"), forms, strict=True))
    in_single = precision != "double"
    return {
        "links: fields": links_bytes(lattice),
        "links: double": double,
        "links: single": single * in_single,
        "clover term": CLOVER_BYTES * lattice.volume * ((0, 4, 10)[clover] + clover * in_single) // 2,
    }


def kept_terms(operator: Node, lattice: Lattice) -> dict[str, int]:
    """Bytes of an operator on a GPU by what they hold, by its node."""
    solves = operator.parameters["solves"]
    return operator_terms(lattice, solves.precision, solves.packing, has_clover(operator), in_su3(operator))


def in_single_terms(operator: Node, lattice: Lattice, parities: int) -> dict[str, int]:
    """Bytes of an operator that multigrid takes beside `kept_terms`: A in single precision on some parities.

    Where solves are in double, what those in double-single keep in single, too.
    """
    solves, clover = operator.parameters["solves"], has_clover(operator)
    packed = [
        sum(operator_terms(lattice, precision, solves.packing, clover, in_su3(operator)).values())
        for precision in (solves.precision, "double-single")
    ]
    matrices = clover * CLOVER_BYTES // 2 * lattice.half_volume * parities
    return {"operator of multigrid": matrices + packed[1] - packed[0]}


def has_clover(operator: Node) -> int:
    """1 if an operator has a clover term, by its node; 2 with a twisted mass, 0 without either.

    In units of a Hermitian matrix: those of twisted quarks have all their elements.
    """
    csw = operator.parameters["csw"]
    return 2 if operator.parameters["mu"] else int(any(csw) if isinstance(csw, Sequence) else bool(csw))


def in_su3(operator: Node) -> bool:
    """Whether links of an operator are in SU(3) up to signs, by its node: none zero, none with a phase."""
    return operator.parameters["boundary"] != "dirichlet" and not any(operator.parameters["theta"])


def on_host(operator: Node, lattice: Lattice, precision: str) -> int:
    """Bytes of an operator on the host by its node, with a clover term in any case."""
    return operator_bytes(lattice, precision, None, max(1, has_clover(operator)))


@of_lattice
def operator_cost(node: Node, lattice: Lattice) -> Cost:
    """Cost of an operator as it stays, with links packed for the solves that are expected."""
    stout = node.parameters["hops"].stout or {}
    terms = kept_terms(node, lattice)
    work = links_work(lattice, 12 + 6 * int(stout.get("steps", 0)))
    return Cost(device_memory=sum(terms.values()), work=work, terms=terms)


@stage(
    version="1",
    over=("config",),
    transient=True,
    resident=True,
    keyed=Keyed(without=SOLVES, later=("mu", "theta")),
    cost=operator_cost,
)
def wilson_operator(
    gauge: GaugeLinks,
    *,
    at: At,
    boundary: str,
    kappa: float | None = None,
    mass: float | None = None,
    csw: float | Sequence[float] = 0.0,
    hops: Hops = Hops(),
    mu: float = 0.0,
    theta: Sequence[float] = NO_TWIST,
    solves: ExpectedSolves = ANY_SOLVES,
) -> WilsonOperator:
    """M with a clover term, as Chroma defines it, and a twisted mass, made once per configuration and worker.

    kappa or mass: m = 1 / (2 kappa) - 4, one of the two. csw: the clover coefficient, or (csw_r, csw_t) of
    the spatial and the temporal planes. boundary: 'periodic', 'antiperiodic' or 'dirichlet' in t. mu: the
    twisted mass of M, not times 2 kappa. theta: phases exp(i pi theta / L) of all links of x, y, z and t.
    solves: for forecasts. Raises InputError.
    """
    coefficient = float(csw) if isinstance(csw, (int, float)) else _planes(csw)
    fields = wilson_links(
        smeared(gauge, at.backend, **hops.stout) if hops.stout else gauge.links,
        gauge.lattice,
        boundary=boundary,
        csw=coefficient,
        anisotropy=Anisotropy(hops.xi0, hops.nu),
        theta=theta,
        backend=at.backend,
    )
    at.record(reunitarisation_deviation=fields.deviation)
    operator = WilsonOperator(WilsonDslash(fields, packing=solves.packing), mass_of(kappa, mass), mu)
    for dtype in solves.wilson_dtypes:
        operator.astype(dtype).pack()  # so that checksums of all that stays are taken at once
    return operator


def smeared(gauge: GaugeLinks, backend: str, *, rho: float, steps: int, spatial: bool = False) -> Array:
    """Stout links, of all directions or of those in space; made unitary first."""
    links = Origin(gauge.links, backend).fetched()
    su3, _ = to_su3_or_open(links, gauge.lattice)
    directions = SPATIAL_DIRECTIONS if spatial else ALL_DIRECTIONS
    return stout_links(su3, gauge.lattice, rho, steps, directions)


def mass_of(kappa: float | None, mass: float | None) -> float:
    """The mass m of M, given as kappa or as it is. Raises InputError unless exactly one is given."""
    if (kappa is None) == (mass is None):
        raise InputError(f"a quark has either a kappa or a mass, got kappa {kappa} and mass {mass}")
    return mass_of_kappa(kappa) if kappa is not None else float(mass or 0.0)


def _planes(csw: Sequence[float]) -> tuple[float, float]:
    if len(csw) != 2:
        raise InputError(f"csw is a number, or [csw_r, csw_t], got {list(csw)}")
    return float(csw[0]), float(csw[1])
