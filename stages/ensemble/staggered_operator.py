"""Stages that turn a gauge configuration into a fermion operator, on the device that solves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipeline import At, Cost, Keyed, Node, stage
from stages.base.errors import InputError
from stages.ensemble.configuration import GaugeLinks
from stages.ensemble.expected_solves import ANY_SOLVES, SOLVES, ExpectedSolves
from stages.lqcd.dirac.staggered import StaggeredDslash
from stages.lqcd.gauge import hisq
from stages.lqcd.gauge.given_links import given_links
from stages.lqcd.gauge.hisq import SMEARING_FIELDS, StaggeredLinks
from stages.lqcd.kernels.directions import HISQ_DIRECTIONS
from stages.lqcd.kernels.gamma import COLOURS
from stages.lqcd.kernels.link_forms import WIDE, Packing, StaggeredForm, staggered_bytes
from stages.lqcd.lattice.formats import read_field
from stages.lqcd.lattice.geometry import Lattice
from stages.lqcd.lattice.sizes import LINK_FIELDS, MATRIX, half_field_bytes, links_bytes
from stages.shared.costs import PROCESS, of_lattice
from stages.shared.work import links_work

MOST_DIRECTIONS = 16
"""Of an operator with three-hop terms."""


@of_lattice
def operator_cost(node: Node, lattice: Lattice) -> Cost:
    """Cost of link fields, and of links packed for the solves that are expected."""
    solves = node.parameters["solves"]
    terms = operator_terms(lattice, directions_of(node), solves.precision, solves.packing)
    if "links: half" in terms and np.complex64 in solves.dtypes:
        terms |= operator_terms(lattice, directions_of(node), "double-single", solves.packing)
    work = links_work(lattice, directions_of(node) * 4)
    return Cost(device_memory=sum(terms.values()), work=work, terms=terms)


def operator_terms(lattice: Lattice, directions: int, precision: str, packing: Packing) -> dict[str, int]:
    """Bytes that stay on a GPU per configuration, by what they hold: link fields, and packed links.

    directions: neighbours of a site, 16 with three hops or 8. precision: of solves, a name of
    `stages.lqcd.solvers.named.PRECISIONS`.
    """
    fields = directions // 8 * links_bytes(lattice)
    return {"links: fields": fields, **packed_terms(lattice, directions, precision, packing)}


def packed_terms(lattice: Lattice, directions: int, precision: str, packing: Packing) -> dict[str, int]:
    """Bytes of packed links of both parities on a GPU, by what they hold."""
    forms = {each: packing.staggered(each, directions) for each in ("double", "single", "half")}
    inner = "half" if precision == "double-half" and forms["half"] is StaggeredForm.SHORT else "single"
    double, mixed = (staggered_bytes(lattice, directions, each, forms[each]) for each in ("double", inner))
    return {"links: double": double, f"links: {inner}": mixed * (precision != "double")}


def staggered_layout_terms(operator: Node, lattice: Lattice, precisions: Sequence[str]) -> dict[str, int]:
    """Bytes of links that trials in these precisions lay out beside an operator on a GPU, at most."""
    packed = (packed_terms(lattice, directions_of(operator), each, WIDE) for each in precisions)
    return {"links: of a trial": max(sum(each.values()) for each in packed)}


def making_terms(lattice: Lattice, directions: int, solves: ExpectedSolves) -> dict[str, int]:
    """Bytes on a GPU beside an operator while its links are smeared, then packed."""
    fields = SMEARING_FIELDS if directions == HISQ_DIRECTIONS else 2
    smearing, matrices = int(fields * links_bytes(lattice)), StaggeredForm.MATRICES
    kept = operator_terms(lattice, directions, solves.precision, solves.packing)
    tiles = sum(
        staggered_bytes(lattice, directions, each, matrices) // 2
        for each in solves.precision.split("-")
        if 0 < solves.packing.staggered(each, directions).value < matrices.value
    )  # of a parity, from which shorter ones are made
    return {"links: making": max(smearing - sum(kept.values()), tiles)}


def host_bytes(lattice: Lattice, blocks: float) -> int:
    """Bytes on the host of a task with an operator and so many right-hand sides of one parity.

    Links while they are made, or those of the operator and its packed ones in both precisions.
    """
    doubled = 16 * MATRIX * lattice.volume
    links = max(LINK_FIELDS * links_bytes(lattice), 3 * links_bytes(lattice) + doubled + doubled // 2)
    return PROCESS + links + int(half_field_bytes(lattice, COLOURS) * blocks)


def directions_of(operator: Node) -> int:
    """Neighbours of a site in the operator that a node makes."""
    return next((each.directions for each in ACTIONS.values() if each.makes(operator)), MOST_DIRECTIONS)


def packed(links: StaggeredLinks, solves: ExpectedSolves) -> StaggeredDslash:
    """The operator, its links packed as the solves need them, so that checksums are taken at once."""
    dslash = StaggeredDslash(links, packing=solves.packing)
    for dtype in solves.dtypes:
        dslash.astype(dtype).pack()
    if solves.precision == "double-half":
        dslash.shortened().pack()
    return dslash


@stage(
    version="1",
    over=("config",),
    transient=True,
    resident=True,
    keyed=Keyed(without=SOLVES, name="hisq_links"),
    cost=operator_cost,
)
def hisq_operator(
    gauge: GaugeLinks,
    *,
    at: At,
    boundary: str,
    naik_epsilon: float,
    solves: ExpectedSolves = ANY_SOLVES,
) -> StaggeredDslash:
    """D with HISQ links in MILC's normalisation, made once per configuration and worker.

    What stays on the worker is the operator, so that all solves share its packed links, too.

    boundary: 'periodic' or 'antiperiodic' in t; naik_epsilon: 0 for light quarks. solves: as the links
    are laid out (`ExpectedSolves`). Raises InputError.
    """
    links = hisq.hisq_links(
        gauge.links, gauge.lattice, boundary=boundary, naik_epsilon=naik_epsilon, backend=at.backend
    )
    at.record(reunitarisation_deviation=links.deviation, u3_fallbacks=links.u3_fallbacks)
    return packed(links, solves)


@stage(
    version="1",
    over=("config",),
    transient=True,
    resident=True,
    keyed=Keyed(without=SOLVES),
    cost=operator_cost,
)
def asqtad_operator(
    gauge: GaugeLinks, *, at: At, boundary: str, u0: float, solves: ExpectedSolves = ANY_SOLVES
) -> StaggeredDslash:
    """D with asqtad links in MILC's normalisation, made once per configuration and worker.

    u0: tadpole factor, the fourth root of the ensemble's mean plaquette. The one-link path carries no power
    of it, so that masses are MILC's: u0 times those of an action of links U / u0. Raises InputError.
    """
    links = hisq.asqtad_links(gauge.links, gauge.lattice, boundary=boundary, u0=u0, backend=at.backend)
    at.record(reunitarisation_deviation=links.deviation)
    return packed(links, solves)


@stage(
    version="1",
    over=("config",),
    transient=True,
    resident=True,
    keyed=Keyed(without=SOLVES, name="naive_links"),
    cost=operator_cost,
)
def naive_operator(
    gauge: GaugeLinks, *, at: At, boundary: str, solves: ExpectedSolves = ANY_SOLVES
) -> StaggeredDslash:
    """D of the unimproved staggered operator, whose one-link current is conserved. Raises InputError."""
    links = hisq.naive_links(gauge.links, gauge.lattice, boundary=boundary, backend=at.backend)
    at.record(reunitarisation_deviation=links.deviation)
    return packed(links, solves)


@stage(
    version="1",
    over=("config",),
    transient=True,
    resident=True,
    keyed=Keyed(without=SOLVES),
    cost=operator_cost,
)
def given_operator(
    gauge: GaugeLinks,
    *,
    at: At,
    fat: Path,
    long: Path,
    boundary: str,
    phases: bool | None = None,
    solves: ExpectedSolves = ANY_SOLVES,
) -> StaggeredDslash:
    """D of fat and long links in SciDAC files, `stages.lqcd.gauge.given_links` says which.

    gauge: the configuration that they were made of. Raises InputError.
    """
    fields = [read_field(path) for path in (fat, long)]
    for field in fields:
        if field.lattice != gauge.lattice:
            raise InputError(f"{field.path} is of {field.lattice}, the configuration of {gauge.lattice}")
    given = fields[0].values, fields[1].values, gauge.links, gauge.lattice
    return packed(given_links(*given, boundary=boundary, phases=phases, backend=at.backend), solves)


@dataclass(frozen=True)
class Action:
    """A staggered action: its stage, and what of it others have to know."""

    stage: Callable[..., StaggeredDslash]
    links: Callable[..., StaggeredLinks]
    """Of the library, that the stage makes the operator of."""
    directions: int
    """Neighbours of a site in the operator."""
    options: tuple[str, ...] = ()
    """Parameters of both beside the boundary."""

    def makes(self, operator: Node) -> bool:
        """True if a node is of this action's stage."""
        return operator.stage.function is self.stage


ACTIONS = {
    "hisq": Action(hisq_operator, hisq.hisq_links, 16, ("naik_epsilon",)),
    "asqtad": Action(asqtad_operator, hisq.asqtad_links, 16, ("u0",)),
    "naive": Action(naive_operator, hisq.naive_links, 8),
}
"""By name in a parameter file. A new action is its stage above, an entry here, and its name in the schema."""
