"""Costs of the stages of mesons: bytes on the host, on a GPU and in the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline import Cost, Node
from stages.lqcd.dirac.wilson import operator_bytes
from stages.lqcd.kernels.gamma import COMPONENTS, SPINS
from stages.lqcd.lattice.geometry import Lattice
from stages.lqcd.lattice.sizes import COMPLEX, LINK_FIELDS, half_field_bytes, links_bytes
from stages.lqcd.multigrid.levels import hierarchy_bytes, hierarchy_terms, setup_bytes
from stages.lqcd.solvers.named import REGULAR, workspace_of
from stages.lqcd.spectroscopy.gammas import CHANNELS, NAMES
from stages.lqcd.spectroscopy.quark_sources import source_columns
from stages.shared.costs import PROCESS, RECORD, of_lattice, options_of
from stages.shared.work import contraction_work, loading_work, multigrid_work, wilson_work

SOLVING = "propagator"
"""Stage whose tasks solve; it is transient, and its cost is that of the stages that it is computed in."""


@of_lattice
def setup_cost(node: Node, lattice: Lattice) -> Cost:
    """Cost of a multigrid setup."""
    levels = node.parameters["levels"]
    stored = hierarchy_bytes(lattice, levels) + RECORD
    working = stored + setup_bytes(lattice, levels)
    operator = operator_bytes(lattice, precision_of(node.inputs[0]), None)
    work, terms = multigrid_work(lattice, levels), _setup_terms(lattice, levels)
    return Cost(PROCESS + operator + working, working, stored, work=work, terms=terms)


@of_lattice
def hierarchy_cost(node: Node, lattice: Lattice) -> Cost:
    """Cost of a hierarchy that solves take."""
    terms = hierarchy_terms(lattice, node.parameters["levels"])
    nbytes = sum(terms.values())
    return Cost(device_memory=nbytes + RECORD, work=loading_work(nbytes), terms=terms)


def _setup_terms(lattice: Lattice, levels: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    return {**hierarchy_terms(lattice, levels), "relaxed near-null vectors": setup_bytes(lattice, levels)}


@of_lattice
def choice_cost(node: Node, lattice: Lattice) -> Cost:
    """Cost of trials of all solvers on a chunk of sources, with a multigrid setup."""
    levels = node.parameters["levels"]
    setup = hierarchy_bytes(lattice, levels) + RECORD + setup_bytes(lattice, levels)
    sources, options = node.inputs[1], options_of(node)
    columns, block = chunk_columns(sources), options["block"]
    host, solving = propagating_bytes(lattice, options["precision"], columns, block, "auto")
    device = sum(solving.values()) + setup + sources.cost.device_memory
    terms = {**solving, **_setup_terms(lattice, levels), **sources.cost.terms}
    return Cost(host + setup + sources.cost.memory, device, RECORD, terms=terms)


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
    stored = COMPLEX * len(NAMES) * momenta * lattice.time_extent * sources + RECORD
    work = contraction_work(lattice, COMPONENTS, _columns(node), momenta * len(NAMES))
    host, terms = _solving(node, lattice)
    return Cost(host, sum(terms.values()), stored, work=work, terms=terms)


@of_lattice
def average_cost(node: Node, lattice: Lattice) -> Cost:
    """Cost of means, errors and samples, and of the channels' effective masses."""
    options, momenta = options_of(node), len(node.parameters["momenta"])
    samples = len(node.inputs[0].over["config"]) // options["jackknife_bin"]
    numbers = len(NAMES) * (2 + samples) + 4 * len(CHANNELS)
    return Cost(stored=8 * momenta * lattice.time_extent * numbers + RECORD)


def propagating_bytes(
    lattice: Lattice, precision: str, columns: int, block: int, solver: str, fields: int = 3
) -> tuple[int, dict[str, int]]:
    """Bytes of solving for propagators on the host, and terms of those on a GPU.

    On the host, with the operator or what making it takes for a while; on a GPU, beside the operator:
    sources, propagators, a block in the solver, and a copy in the contraction where there are three `fields`.
    """
    half = half_field_bytes(lattice, COMPONENTS)
    block = min(block, columns)
    terms = {
        "sources and propagators": half * 2 * fields * columns,
        f"blocks of the solver (N = {block})": half * int(workspace_of(solver, REGULAR).host) * block,
    }
    working = operator_bytes(lattice, precision, None) + sum(terms.values())
    return PROCESS + max(LINK_FIELDS * links_bytes(lattice), working), terms


def chunk_columns(sources: Node) -> int:
    """Right-hand sides of a chunk of sources; of `FirstSources` as many as their node says."""
    if block := sources.parameters.get("block"):
        return int(block)
    return columns_of(sources) * sources.chunk["source"]


def columns_of(sources: Node) -> int:
    """Right-hand sides of a source, by the node that makes it: 4 or 12, those of a user's file as it has."""
    if paths := sources.files.get("path"):
        return source_columns(paths if isinstance(paths, Path) else next(iter(paths.values())))
    return SPINS if sources.stage.name == "z2_wall_sources" else COMPONENTS


def precision_of(operator: Node) -> str:
    """Precision of the solves with an operator."""
    return operator.parameters["solves"].precision


def _solving(node: Node, lattice: Lattice) -> tuple[int, dict[str, int]]:
    """Bytes on the host, and terms of those on a GPU, of a task that solves.

    It solves for the propagators that a node is made of.
    """
    options = options_of(_propagators(node))
    settings = (options["block"], options["solver"])
    return propagating_bytes(lattice, options["precision"], _columns(node), *settings)


def _columns(node: Node) -> int:
    return chunk_columns(_propagators(node).inputs[1])


def _propagators(node: Node) -> Node:
    """The node that solves, above another one."""
    return node if node.stage.name == SOLVING else _propagators(node.inputs[0])
