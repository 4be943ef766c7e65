"""Costs of the stages of mesons: bytes on the host, on a GPU and in the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline import Cost, Node
from stages.ensemble.expected_solves import ExpectedSolves
from stages.ensemble.staggered_operator import directions_of, host_bytes, making_terms, staggered_layout_terms
from stages.ensemble.wilson_operator import has_clover, in_single_terms, in_su3, on_host, operator_terms
from stages.lqcd.kernels.gamma import COLOURS, COMPONENTS, SPINS
from stages.lqcd.kernels.link_forms import WIDE
from stages.lqcd.lattice.geometry import Lattice
from stages.lqcd.lattice.sizes import COMPLEX, LINK_FIELDS, half_field_bytes, links_bytes
from stages.lqcd.multigrid.levels import hierarchy_terms, loaded_terms, setup_bytes
from stages.lqcd.solvers.named import POSITIVE, REGULAR, workspace_of
from stages.lqcd.spectroscopy.connected import wall_columns
from stages.lqcd.spectroscopy.little_group import check_at_rest
from stages.lqcd.spectroscopy.quark_sources import SourcePlace, source_columns
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
from stages.shared.work import contraction_work, loading_work, multigrid_work, staggered_work, wilson_work

SMALL = 11
"""Blocks of a solver: where a solver takes more, as GCR and BiCGstab in double, its fields lie together."""

CONTRACTED = 7
"""Fields of a contraction on both parities: quark, antiquark, both by slice, and those of a displacement."""

SOLVED = 2.6
"""Blocks of one parity beside a solver's: a block's solution on the whole lattice, and what a pool leaves."""

SOLVING = "propagator"
"""Stage whose tasks solve; it is transient, and its cost is that of the stages that it is computed in."""


@of_lattice
def setup_cost(node: Node, lattice: Lattice) -> Cost:
    """Cost of a multigrid setup."""
    levels = node.parameters["levels"]
    stored = sum(hierarchy_terms(lattice, levels).values()) + RECORD
    working = stored + setup_bytes(lattice, levels)
    operator = on_host(node.inputs[0], lattice, precision_of(node.inputs[0]))
    work, terms = multigrid_work(lattice, levels), _setup_terms(node.inputs[0], lattice, levels)
    return Cost(PROCESS + operator + working, sum(terms.values()), stored, work=work, terms=terms)


@of_lattice
def hierarchy_cost(node: Node, lattice: Lattice) -> Cost:
    """Cost of a hierarchy that solves take."""
    levels = node.parameters["levels"]
    stored = sum(hierarchy_terms(lattice, levels).values())
    terms = {**loaded_terms(lattice, levels), **in_single_terms(node.inputs[0], lattice, 1)}
    return Cost(device_memory=sum(terms.values()), work=loading_work(stored), terms=terms)


def _setup_terms(operator: Node, lattice: Lattice, levels: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    return {
        **hierarchy_terms(lattice, levels),
        "relaxed near-null vectors": setup_bytes(lattice, levels),
        **in_single_terms(operator, lattice, 2),
    }


@of_lattice
def choice_cost(node: Node, lattice: Lattice) -> Cost:
    """Cost of trials of all solvers on a chunk of sources, with a multigrid setup.

    On a GPU of blocks as wide as asked for: wider ones are tried where there is room.
    """
    levels, (operator, sources) = node.parameters["levels"], node.inputs
    setup = sum(hierarchy_terms(lattice, levels).values()) + RECORD + setup_bytes(lattice, levels)
    precisions, first, widest = tried_blocks(node)
    columns = chunk_columns(sources)
    needs = [propagating_bytes(operator, lattice, each, columns, widest, "auto")[0] for each in precisions]
    solving = largest_of(
        *(propagating_terms(lattice, each, columns, min(first, columns), "auto") for each in precisions)
    )
    made, loaded = _setup_terms(operator, lattice, levels), loaded_terms(lattice, levels)
    loaded["near-null vectors"] += made["near-null vectors"]  # those of the setup, and what cycles read
    single = {"operator of multigrid": made["operator of multigrid"]}
    packed = operator_terms(lattice, "double-single", WIDE, has_clover(operator), in_su3(operator))
    layout = {"links: of a trial": packed["links: double"] + packed["links: single"]}
    terms = {**largest_of(made, {**solving, **layout, **loaded, **single}), **sources.cost.terms}
    device = sum(terms.values()) + sources.cost.device_memory - sum(sources.cost.terms.values())
    return Cost(max(needs) + setup + sources.cost.memory, device, RECORD, terms=terms)


@of_lattice
def sources_cost(node: Node, lattice: Lattice) -> Cost:
    """Cost of sources: on a lattice that GPUs share; their bytes are those of the stages that solve."""
    return Cost()


@of_lattice
def propagator_cost(node: Node, lattice: Lattice) -> Cost:
    """Work of solves for propagators; their bytes are those of the stages that they are computed in."""
    operator, sources = node.inputs[:2]
    mass = operator.parameters["kappa"] or operator.parameters["mass"]
    return Cost(work=wilson_work(lattice, mass, node.parameters["solve"], chunk_columns(sources)))


@of_lattice
def kept_cost(node: Node, lattice: Lattice) -> Cost:
    """Cost of propagators that are committed to the store."""
    stored = 2 * half_field_bytes(lattice, COMPONENTS) * _columns(node) + RECORD
    host, terms = _solving(node, lattice)
    return Cost(host, sum(terms.values()), stored, terms=terms)


@of_lattice
def two_point_cost(node: Node, lattice: Lattice) -> Cost:
    """Cost of two-point functions, in whose tasks propagators are solved for."""
    momenta, sources = len(node.parameters["momenta"]), node.chunk["source"]
    gammas = len(node.parameters["gammas"])
    stored = COMPLEX * gammas * momenta * lattice.time_extent * sources + RECORD
    work = contraction_work(lattice, COMPONENTS, _columns(node), momenta * gammas)
    host, terms = _solving(node, lattice)
    if flavours := node.inputs[1:]:
        terms["propagators of the other flavour"] = 2 * half_field_bytes(lattice, COMPONENTS) * _columns(node)
        host += len(flavours) * terms["propagators of the other flavour"]
    return Cost(host, sum(terms.values()), stored, work=work, terms=terms)


@of_lattice
def average_cost(node: Node, lattice: Lattice) -> Cost:
    """Cost of means, errors and samples of correlators, and of the channels' effective masses."""
    options, momenta = options_of(node), len(node.parameters["momenta"])
    check_at_rest(options["channels"], node.parameters["momenta"])
    samples = len(node.inputs[0].over["config"]) // options["jackknife_bin"]
    labels = options["operators"] if "operators" in options else options["gammas"]
    numbers = len(labels) * (2 + samples) + 4 * len(options["channels"])
    return Cost(stored=8 * momenta * lattice.time_extent * numbers + RECORD)


def propagating_bytes(
    operator: Node, lattice: Lattice, precision: str, columns: int, block: int, solver: str, fields: int = 3
) -> tuple[int, dict[str, int]]:
    """Bytes of solving for propagators on the host, and terms of those on a GPU beside the operator.

    On the host, with the operator or what making it takes for a while: sources, propagators, a block in the
    solver, and a copy in the contraction where there are three `fields`.
    """
    half, space = half_field_bytes(lattice, COMPONENTS), workspace_of(solver, REGULAR)
    block = min(block, columns)
    solving = half * int(space.on_host(precision)) * block
    working = on_host(operator, lattice, precision) + half * 2 * fields * columns + solving
    terms = propagating_terms(lattice, precision, columns, block, solver)
    return PROCESS + max(LINK_FIELDS * links_bytes(lattice), working), terms


def propagating_terms(
    lattice: Lattice, precision: str, columns: int, block: int, solver: str
) -> dict[str, int]:
    """Bytes on a GPU beside the operator while columns are solved for, `block` at a time.

    Sources, and of several blocks what they give and a copy of one block's sources; what the solver takes;
    a block's solution on the whole lattice, which a GPU's pool has no room for among the `SMALL` fields of a
    solver.
    """
    half, space = half_field_bytes(lattice, COMPONENTS), workspace_of(solver, REGULAR)
    several = block < columns
    return {
        "sources and propagators": half * 2 * (columns + several * (columns + block)),
        f"blocks of the solver (N = {block})": int(half * space.on_device(precision) * block),
        "solution of a block": half * 2 * block * (space.on_device(precision) <= SMALL),
    }


def chunk_columns(sources: Node) -> int:
    """Right-hand sides of a chunk of sources; of `FirstSources` as many as their node says."""
    if block := sources.parameters.get("block"):
        return int(block)
    return columns_of(sources) * sources.chunk["source"]


def columns_of(sources: Node) -> int:
    """Right-hand sides of a source, by the node that makes it: all sources of a workflow are of one kind.

    4 or 12 of Wilson quarks, those of a user's file as it has; of staggered quarks by the operators.
    """
    if paths := sources.files.get("path"):
        return source_columns(paths if isinstance(paths, Path) else next(iter(paths.values())))
    if operators := sources.parameters.get("operators"):
        if sources.stage.name == "random_wall_sources":
            return wall_columns(operators)
        return staggered_columns(SourcePlace.parse(str(sources.over["source"][0])), operators)
    return SPINS if sources.stage.name == "z2_wall_sources" else COMPONENTS


def staggered_columns(place: SourcePlace, operators: Sequence[str]) -> int:
    """Right-hand sides of one staggered source for operators of these labels."""
    fields = 1 + sum(source_sign(SpinTaste.parse(each), place) is None for each in operators)
    return (COLOURS if place.noise is None else 1) * fields


def precision_of(operator: Node) -> str:
    """Precision of the solves with an operator."""
    return operator.parameters["solves"].precision


def _solving(node: Node, lattice: Lattice) -> tuple[int, dict[str, int]]:
    """Bytes on the host, and terms of those on a GPU, of a task that solves.

    It solves for the propagators that a node is made of.
    """
    solved = _propagators(node)
    options = options_of(solved)
    settings = (options["precision"], _columns(node), options["block"], options["solver"])
    return propagating_bytes(solved.inputs[0], lattice, *settings)


def _columns(node: Node) -> int:
    return chunk_columns(_propagators(node).inputs[1])


def _propagators(node: Node) -> Node:
    """The node that solves, above another one."""
    return node if node.stage.name == SOLVING else _propagators(node.inputs[0])


@of_lattice
def staggered_two_point_cost(node: Node, lattice: Lattice) -> Cost:
    """Cost of two-point functions, in whose tasks the solutions are made."""
    solved = node.inputs[0]
    columns, options, operator = chunk_columns(solved.inputs[1]), options_of(solved), solved.inputs[0]
    solves = ExpectedSolves(options["solver"], options["precision"], min(options["block"], columns))
    deflated, half = solved.inputs[2:], half_field_bytes(lattice, COLOURS)
    contracting = {
        "sources and solutions": half * 4 * columns,
        "contraction": half * 2 * CONTRACTED * COLOURS,
    }
    host, solving = staggered_solving(lattice, columns, solves, solves.block, deflated)
    made = making_terms(lattice, directions_of(operator), operator.parameters["solves"])
    terms = largest_of(solving, contracting, made)
    products = len(node.parameters["operators"]) * len(node.parameters["momenta"])
    work = contraction_work(lattice, COLOURS, columns, products)
    stored = COMPLEX * products * lattice.time_extent * node.chunk["source"] + 24 * columns + RECORD
    return Cost(host, sum(terms.values()), stored, work=work, terms=terms)


@of_lattice
def staggered_choice_cost(node: Node, lattice: Lattice) -> Cost:
    """Cost of trials on a chunk of sources.

    On a GPU of blocks as wide as asked for: wider ones are tried where there is room.
    """
    operator, sources, *deflated = node.inputs
    columns, (precisions, first, widest) = chunk_columns(sources), tried_blocks(node)
    block, widest = min(first, columns), min(widest, columns)
    tried = [ExpectedSolves("auto", each, block) for each in precisions]
    needs = [staggered_solving(lattice, columns, each, widest, deflated) for each in tried]
    terms = largest_of(*(on_device for _, on_device in needs))
    terms |= staggered_layout_terms(operator, lattice, precisions)
    return Cost(needs[0][0], sum(terms.values()), RECORD, terms=terms)


def staggered_solving(
    lattice: Lattice, columns: int, solves: ExpectedSolves, widest: int, deflated: Sequence[Node]
) -> tuple[int, dict[str, int]]:
    """Bytes on the host, in blocks of the `widest`, and terms of those on a GPU while it solves."""
    space, half = workspace_of(solves.solver, POSITIVE), half_field_bytes(lattice, COLOURS)
    block, several = solves.block, solves.block < columns
    terms = {
        "sources and solutions": half * 2 * columns * (1 + several),
        "right-hand sides and solution of a block": int(half * (2 * several + SOLVED) * block),
        f"blocks of the solver (N = {block})": int(half * space.on_device(solves.precision) * block),
        "blocks of the deflation": half * DEFLATING * block * bool(deflated),
    }
    blocks = 4 * columns + max(5 * widest, 2 * CONTRACTED * COLOURS) + space.host * widest
    return host_bytes(lattice, blocks) + sum(node.cost.device_memory for node in deflated), terms


@of_lattice
def staggered_propagator_cost(node: Node, lattice: Lattice) -> Cost:
    """Work of the solves; their bytes are those of the two-point functions."""
    mass, solve = node.parameters["mass"], node.parameters["solve"]
    columns, vectors = chunk_columns(node.inputs[1]), sum(map(deflated_vectors, node.inputs[2:]))
    return Cost(work=staggered_work(lattice, mass, solve, columns, directions_of(node.inputs[0]), vectors))
