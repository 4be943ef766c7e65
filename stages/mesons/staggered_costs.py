"""Costs of the stages of staggered mesons: bytes on the host, on a GPU and in the store."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline import Cost, Node
from stages.ensemble.expected_solves import ExpectedSolves
from stages.ensemble.staggered_operator import directions_of, staggered_layout_terms
from stages.lqcd.dirac.staggered import making_bytes, operator_bytes
from stages.lqcd.kernels.gamma import COLOURS
from stages.lqcd.lattice.geometry import Lattice
from stages.lqcd.lattice.sizes import COMPLEX, LINK_FIELDS, MATRIX, half_field_bytes, links_bytes
from stages.lqcd.solvers.named import POSITIVE, workspace_of
from stages.lqcd.spectroscopy.little_group import check_at_rest
from stages.lqcd.spectroscopy.quark_sources import SourcePlace
from stages.lqcd.spectroscopy.staggered_mesons import source_sign
from stages.lqcd.spectroscopy.staggered_operators import SpinTaste
from stages.shared.costs import (
    DEFLATING,
    PROCESS,
    RECORD,
    deflated_vectors,
    largest_of,
    of_lattice,
    options_of,
)
from stages.shared.solver_trials import tried_blocks
from stages.shared.work import contraction_work, staggered_work

CONTRACTED = 7
"""Fields of a contraction on both parities: quark, antiquark, both by slice, and those of a displacement."""

SOLVED = 2.6
"""Blocks of one parity beside a solver's: a block's solution on the whole lattice, and what a pool leaves."""


@of_lattice
def staggered_two_point_cost(node: Node, lattice: Lattice) -> Cost:
    """Cost of two-point functions, in whose tasks the solutions are made."""
    solved = node.inputs[0]
    columns, options, operator = chunk_columns(solved), options_of(solved), solved.inputs[0]
    solves = ExpectedSolves(options["solver"], options["precision"], min(options["block"], columns))
    deflated = solved.inputs[2:]
    host = _host_bytes(lattice, columns, solves) + _basis_bytes(deflated)
    precision, packing = solves.precision, operator.parameters["solves"].packing
    form = directions_of(operator), precision, packing
    terms = largest_of(
        _solving_terms(lattice, columns, solves, bool(deflated)),
        {
            "sources and solutions": half_field_bytes(lattice, COLOURS) * 4 * columns,
            "contraction": half_field_bytes(lattice, COLOURS) * 2 * CONTRACTED * COLOURS,
        },
        {"links: making": making_bytes(lattice, *form) - operator_bytes(lattice, *form)},
    )
    numbers = len(node.parameters["operators"]) * len(node.parameters["momenta"]) * lattice.time_extent
    products = len(node.parameters["operators"]) * len(node.parameters["momenta"])
    work = contraction_work(lattice, COLOURS, columns, products)
    stored = COMPLEX * numbers * node.chunk["source"] + 24 * columns + RECORD
    return Cost(host, sum(terms.values()), stored, work=work, terms=terms)


@of_lattice
def staggered_choice_cost(node: Node, lattice: Lattice) -> Cost:
    """Cost of trials on a chunk of sources.

    On a GPU of blocks as wide as asked for: wider ones are tried where there is room.
    """
    operator, columns = node.inputs[0], chunk_columns(node)
    precisions, first, widest = tried_blocks(node)
    deflated = node.inputs[2:]
    tried = [ExpectedSolves("auto", each, min(first, columns)) for each in precisions]
    terms = largest_of(*(_solving_terms(lattice, columns, each, bool(deflated)) for each in tried))
    terms |= staggered_layout_terms(operator, lattice, precisions)
    solves = ExpectedSolves("auto", block=min(widest, columns))
    host = _host_bytes(lattice, columns, solves) + _basis_bytes(deflated)
    return Cost(host, sum(terms.values()), RECORD, terms=terms)


def _host_bytes(lattice: Lattice, columns: int, solves: ExpectedSolves) -> int:
    """Bytes on the host of a task that solves for so many columns."""
    space, half = workspace_of(solves.solver, POSITIVE), half_field_bytes(lattice, COLOURS)
    fields = 4 * columns + max(5 * solves.block, 2 * CONTRACTED * COLOURS)
    doubled = 16 * MATRIX * lattice.volume
    links = max(LINK_FIELDS * links_bytes(lattice), 3 * links_bytes(lattice) + doubled + doubled // 2)
    return PROCESS + links + int(half * (fields + space.host * solves.block))


def _solving_terms(lattice: Lattice, columns: int, solves: ExpectedSolves, deflated: bool) -> dict[str, int]:
    """Terms of the bytes on a GPU while a block is solved for."""
    space, half = workspace_of(solves.solver, POSITIVE), half_field_bytes(lattice, COLOURS)
    block, several = solves.block, solves.block < columns
    return {
        "sources and solutions": half * 2 * columns * (1 + several),
        "right-hand sides and solution of a block": int(half * (2 * several + SOLVED) * block),
        f"blocks of the solver (N = {block})": int(half * space.on_device(solves.precision) * block),
        "blocks of the deflation": half * DEFLATING * block * deflated,
    }


def _basis_bytes(deflated: Sequence[Node]) -> int:
    """Bytes of eigenvectors, of the deflation that solves may take."""
    return sum(node.cost.device_memory for node in deflated)


@of_lattice
def staggered_propagator_cost(node: Node, lattice: Lattice) -> Cost:
    """Work of the solves; their bytes are those of the two-point functions."""
    mass, solve = node.parameters["mass"], node.parameters["solve"]
    columns, vectors = chunk_columns(node), sum(map(deflated_vectors, node.inputs[2:]))
    return Cost(work=staggered_work(lattice, mass, solve, columns, directions_of(node.inputs[0]), vectors))


@of_lattice
def staggered_average_cost(node: Node, lattice: Lattice) -> Cost:
    """Cost of means, errors and samples, and of the channels' effective masses."""
    options = options_of(node)
    check_at_rest(options["channels"], node.parameters["momenta"])
    samples = len(node.inputs[0].over["config"]) // options["jackknife_bin"]
    numbers = len(options["operators"]) * (2 + samples) + 4 * len(options["channels"])
    return Cost(stored=8 * len(options["momenta"]) * lattice.time_extent * numbers + RECORD)


def chunk_columns(solved: Node) -> int:
    """Right-hand sides of a chunk of the node that solves: all sources of a workflow are of one kind."""
    sources = solved.inputs[1]
    place = SourcePlace.parse(str(sources.over["source"][0]))
    return source_columns(place, sources.parameters["operators"]) * sources.chunk["source"]


def source_columns(place: SourcePlace, operators: Sequence[str]) -> int:
    """Right-hand sides of one source for operators of these labels."""
    fields = 1 + sum(source_sign(SpinTaste.parse(each), place) is None for each in operators)
    return (COLOURS if place.noise is None else 1) * fields
