"""Costs of the stages of connected correlators: bytes on the host, on a GPU and in the store."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline import Cost, Node, Pass
from stages.ensemble.expected_solves import ExpectedSolves
from stages.ensemble.staggered_operator import directions_of, host_bytes, making_terms
from stages.lqcd.kernels.gamma import COLOURS
from stages.lqcd.kernels.link_forms import StaggeredForm, staggered_bytes
from stages.lqcd.lattice.geometry import Lattice
from stages.lqcd.lattice.sizes import COMPLEX, half_field_bytes, links_bytes
from stages.lqcd.spectroscopy.vector_currents import hops_of
from stages.mesons.costs import CONTRACTED, chunk_columns, staggered_solving
from stages.shared.costs import RECORD, deflated_vectors, largest_of, of_lattice, options_of
from stages.shared.work import MODE_FIELDS, contraction_work, loading_work

WIDTHS = {"cpu": 16, "cuda": 64}
"""Modes of a block of meson fields, by backend."""
HELD = 256
"""Rows of meson fields whose modes a host holds at a time; a GPU as many as fit, here the fewest."""
KEPT = 2
"""Fields that a current of hops holds besides its packed links: those it is made of."""


def current_terms(lattice: Lattice, operators: Sequence[str], together: bool) -> dict[str, int]:
    """Bytes on a GPU of operators, all `together` or the largest; local ones have signs only."""
    sizes = [
        (1 + label.startswith("C"))
        * (links_bytes(lattice) + staggered_bytes(lattice, 8, "double", StaggeredForm.MATRICES))
        for label in operators
        if hops_of(label)
    ]
    making = KEPT * links_bytes(lattice)
    return {"links: currents": (sum(sizes) if together else max(sizes)) + making} if sizes else {}


@of_lattice
def low_propagator_cost(node: Node, lattice: Lattice) -> Cost:
    """Cost of the norms of D on all modes; the vectors are those of the deflation."""
    field = half_field_bytes(lattice, COLOURS)
    return Cost(work=(Pass("modes", deflated_vectors(node.inputs[0]), float(MODE_FIELDS * field)),))


@of_lattice
def meson_fields_cost(node: Node, lattice: Lattice) -> Cost:
    """Cost of rows of meson fields, which stay on the host until they are stored."""
    low, operators, rows = node.inputs[0], node.parameters["operators"], node.chunk["row"]
    deflation, field = low.inputs[0], half_field_bytes(lattice, COLOURS)
    modes = len(low.parameters["ranks"] or range(deflated_vectors(deflation)))
    rows, wide = min(rows, modes), min(WIDTHS["cuda"], modes)
    stored = COMPLEX * 2 * len(operators) * lattice.time_extent * modes * rows
    currents = current_terms(lattice, operators, together=True)
    terms = {f"blocks of modes (N = {wide})": 5 * wide * field, "meson fields": stored, **currents}
    directions = directions_of(deflation.inputs[0])
    terms = largest_of(terms, making_terms(lattice, directions, deflation.inputs[0].parameters["solves"]))
    host = host_bytes(lattice, 2 * (min(rows, HELD) + 3 * WIDTHS["cpu"]))
    host += stored + deflation.cost.device_memory + sum(currents.values())
    pairs = modes * rows * len(operators) / WIDTHS["cpu"]
    products = Pass("products", max(1, int(pairs)), 4.0 * field)
    work = (Pass("modes", modes, float(MODE_FIELDS * field)), products)
    return Cost(host, sum(terms.values()), stored + RECORD, work=work, terms=terms)


@of_lattice
def low_low_cost(node: Node, lattice: Lattice) -> Cost:
    """Cost of LL, for which meson fields are read once."""
    fields = node.inputs[0]
    modes, rows = len(fields.over["row"]), fields.chunk["row"]
    of_operator = 2 * COMPLEX * lattice.time_extent * modes
    whole = of_operator * modes * len(node.parameters["operators"])
    stored = 8 * len(node.parameters["operators"]) * lattice.time_extent + RECORD
    return Cost(host_bytes(lattice, 0) + 3 * rows * of_operator, stored=stored, work=loading_work(whole))


@of_lattice
def wall_correlators_cost(node: Node, lattice: Lattice) -> Cost:
    """Cost of correlators by random walls, in whose tasks the solutions are made."""
    solved, operators = node.inputs[0], node.parameters["operators"]
    columns, options, operator = chunk_columns(solved.inputs[1]), options_of(solved), solved.inputs[0]
    solves = ExpectedSolves(options["solver"], options["precision"], min(options["block"], columns))
    deflated, low, field = solved.inputs[2:], len(node.inputs) > 3, half_field_bytes(lattice, COLOURS)
    currents = current_terms(lattice, operators, together=False)
    contracting = {
        "sources and solutions": field * (4 + 2 * low) * columns,
        "contraction": field * 2 * CONTRACTED * COLOURS + field * 6 * solves.block * low,
        **currents,
    }
    host, solving = staggered_solving(lattice, columns, solves, solves.block, deflated)
    terms = largest_of(
        solving, contracting, making_terms(lattice, directions_of(operator), operator.parameters["solves"])
    )
    host += 2 * low * columns * field + sum(currents.values())
    sizes = 2 * COMPLEX * len(operators) * lattice.time_extent + 8
    work = contraction_work(lattice, COLOURS, columns * (1 + low), len(operators))
    if low:
        modes = deflated_vectors(node.inputs[3].inputs[0])
        work += (Pass("low modes", 2 * columns, float(field * modes / 8)),)
    stored = sizes * node.chunk["source"] + 24 * columns + RECORD
    return Cost(host, sum(terms.values()), stored, work=work, terms=terms)


@of_lattice
def correlator_cost(node: Node, lattice: Lattice) -> Cost:
    """Cost of C(t) of a configuration."""
    numbers = 3 * len(node.parameters["currents"]) + len(node.parameters["operators"])
    return Cost(stored=8 * lattice.time_extent * numbers + RECORD)


@of_lattice
def average_cost(node: Node, lattice: Lattice) -> Cost:
    """Cost of means, errors and samples of all quarks."""
    samples = len(node.inputs[0].over["config"]) // node.parameters["jackknife_bin"]
    numbers = len(node.parameters["quarks"]) * len(node.parameters["currents"]) * (3 + samples)
    return Cost(stored=8 * lattice.time_extent * numbers + RECORD)
