"""Costs of the stages of loops: bytes on the host, on a GPU and in the store."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

from pipeline import Cost, Node, Pass
from stages.ensemble.expected_solves import ExpectedSolves
from stages.ensemble.staggered_operator import directions_of, host_bytes, making_terms, staggered_layout_terms
from stages.lqcd.eigen.memory import needed_bytes, needed_terms
from stages.lqcd.eigen.stored_vectors import loaded_bytes, searched_in_single, stored_bytes
from stages.lqcd.eigen.window import subspace_size
from stages.lqcd.estimators.low_modes import SLAB, SLAB_FIELDS
from stages.lqcd.gauge.hisq import SMEARING_FIELDS
from stages.lqcd.kernels.link_forms import staggered_bytes
from stages.lqcd.lattice.geometry import Lattice
from stages.lqcd.lattice.sizes import COMPLEX, half_field_bytes, links_bytes
from stages.lqcd.noise.dilution import Dilution
from stages.lqcd.solvers.named import POSITIVE, workspace_of
from stages.shared.costs import (
    DEFLATING,
    RECORD,
    deflated_vectors,
    largest_of,
    of_lattice,
    options_of,
)
from stages.shared.solver_trials import tried_blocks
from stages.shared.work import (
    eigensolve_work,
    loading_work,
    low_modes_work,
    staggered_work,
    together,
)

FLAVOUR_COUNT = 3
"""Light, strange, and their difference."""


@of_lattice
def trials_cost(node: Node, lattice: Lattice) -> Cost:
    """Cost of trials on the first noise vectors and probes, of which a block of either parity is kept.

    On a GPU of blocks as wide as asked for: wider ones are tried where there is room.
    """
    options, operator = options_of(node), node.inputs[0]
    precisions, first, widest = tried_blocks(node)
    columns, basis = max(options["vectors"] * options["probes"], ceil(first / 2)), _basis_bytes(node)
    host, directions = solving_bytes(lattice, widest, columns) + basis, directions_of(operator)
    tried = [ExpectedSolves("auto", precision, first) for precision in precisions]
    deflated = basis > 0
    terms = largest_of(
        *(device_solving_terms(lattice, directions, each, columns, deflated=deflated) for each in tried)
    )
    terms |= staggered_layout_terms(operator, lattice, precisions)
    return Cost(host, sum(terms.values()), RECORD, terms=terms)


@of_lattice
def loops_cost(node: Node, lattice: Lattice) -> Cost:
    """Cost of loops of one mass, or of two and their difference, from noise or, without, exact.

    They are solved for with an operator, the first input, and the deflation that may be the second.
    """
    options, directions = options_of(node), directions_of(node.inputs[0])
    masses = 1 if "mass" in options else FLAVOUR_COUNT
    columns = node.chunk["noise"] * node.chunk["probe"] if "noise" in node.chunk else 0
    solves = ExpectedSolves(options["solver"], options["precision"], options["block"])
    basis = _basis_bytes(node)
    host = solving_bytes(lattice, solves.block, columns, solves.solver) + basis
    current = {"smeared": smeared_current(node), "deflated": basis > 0}
    terms = device_solving_terms(lattice, directions, solves, columns, **current)
    stored, work = loops_bytes(lattice, masses * max(columns, 1)), _solves_work(node, lattice, columns)
    return Cost(host, sum(terms.values()), stored, work=work, terms=terms)


def _basis_bytes(node: Node) -> int:
    """Bytes of the deflation that a node may have for its second input."""
    return node.inputs[1].cost.device_memory if len(node.inputs) > 1 else 0


def _solves_work(node: Node, lattice: Lattice, columns: int) -> tuple[Pass, ...]:
    """Solves of all subsets of a chunk's noise, or of every site and colour, for each mass."""
    solve, options, parameters = node.parameters["solve"], options_of(node), node.parameters
    if columns:
        subsets = Dilution.parse(parameters["noise"].dilution).count(lattice) // 2
    else:
        columns, subsets = 1, 3 * lattice.half_volume
    vectors = deflated_vectors(node.inputs[1]) if len(node.inputs) > 1 else 0
    masses = [options["mass"]] if "mass" in options else [options["light"], options["strange"]]
    of_parity = [
        staggered_work(lattice, mass, solve, columns * subsets, directions_of(node.inputs[0]), vectors)
        for mass in masses
    ]
    return together([*of_parity, *of_parity])  # both parities


def smeared_current(node: Node) -> bool:
    """True if a node's current has smeared links, which are made where it is contracted."""
    return bool(node.parameters.get("current_links") == "smeared")


def solving_bytes(lattice: Lattice, block: int, columns: int, solver: str = "auto") -> int:
    """Bytes on the host with an operator, a block in the solver, and the noise vectors."""
    return host_bytes(lattice, workspace_of(solver, POSITIVE).host * block + 2 * columns)


CONTRACTED = 5
"""Blocks of a contraction: sources, and of two masses the solutions and what D makes of them."""


def device_solving_terms(
    lattice: Lattice,
    directions: int,
    solves: ExpectedSolves,
    columns: int,
    *,
    smeared: bool = False,
    deflated: bool = False,
) -> dict[str, int]:
    """Bytes beside an operator on a GPU, by what they hold, at the time when they are most.

    That is while a block is solved or contracted, or its links are made. Noise vectors on both parities, the
    current's links of one, and the solver's blocks; where the current has smeared links, these are made
    before a block's first contraction.
    """
    block, half = solves.block, half_field_bytes(lattice, 3)
    blocks = workspace_of(solves.solver, POSITIVE).on_device(solves.precision) * block
    kept = {"links: current": links_bytes(lattice) // 2, "noise": 2 * half * columns}
    solving = {f"blocks of the solver (N = {block})": int(half * blocks)}
    solving["blocks of the deflation"] = half * DEFLATING * block * deflated
    contracting = {f"blocks of the contraction (N = {block})": half * CONTRACTED * block}
    making = making_terms(lattice, directions, solves)
    current = int(SMEARING_FIELDS * links_bytes(lattice)) if smeared else kept["links: current"]
    contracted = {**kept, **contracting, "links: current": current}
    return largest_of({**kept, **solving}, contracted, making)


def loops_bytes(lattice: Lattice, vectors: int) -> int:
    """J_mu(t) and the condensate by parity of each noise vector."""
    return 8 * vectors * (4 * lattice.time_extent + 2) + RECORD


@of_lattice
def space_cost(node: Node, lattice: Lattice) -> Cost:
    """Cost of an eigensolve."""
    options = options_of(node)
    vectors, block, precision = options["vectors"], options["block"], options["precision"]
    tolerance = options["tolerance"]
    matrices = 2 * vectors * (COMPLEX * vectors + 8)
    operator = node.inputs[0]
    solves, directions = operator.parameters["solves"], directions_of(operator)
    modes, single = 3 * lattice.half_volume, searched_in_single(precision, tolerance)
    itemsize, searched = (COMPLEX // 2, "single") if single else (COMPLEX, "double")
    terms = needed_terms(modes, itemsize, vectors, block, subspace_size(vectors, block, modes))
    if solves.packing.double == single:  # they are packed for the length of the search
        form = replace(solves.packing, double=True).staggered(searched, directions)
        terms[f"links: {searched}"] = staggered_bytes(lattice, directions, searched, form)
    return Cost(
        eigensolve_bytes(lattice, vectors, block, itemsize),
        sum(terms.values()),
        stored_bytes(lattice, vectors, precision) + matrices + RECORD,
        eigensolve_work(lattice, vectors, directions_of(node.inputs[0]), tolerance),
        terms,
    )


def eigensolve_bytes(lattice: Lattice, vectors: int, block: int, itemsize: int = COMPLEX) -> int:
    """Bytes that block Lanczos takes on the host.

    With the operator, and a copy of the subspace, for the checkpoint or of what is stored.
    """
    modes = 3 * lattice.half_volume
    subspace = subspace_size(vectors, block, modes)
    needed = needed_bytes(modes, itemsize, vectors, block, subspace)
    return solving_bytes(lattice, 0, 0) + needed + modes * itemsize * subspace


@of_lattice
def deflation_cost(node: Node, lattice: Lattice) -> Cost:
    """Cost of the deflation vectors where solves use them."""
    precision = options_of(node.inputs[1])["precision"]
    vectors = deflated_vectors(node)
    nbytes, held = loaded_bytes(lattice, vectors, precision), "double" if precision == "double" else "single"
    terms = {f"eigenvectors ({vectors}, {held})": nbytes}
    return Cost(device_memory=nbytes, work=loading_work(nbytes), terms=terms)


@of_lattice
def low_modes_cost(node: Node, lattice: Lattice) -> Cost:
    """Cost of the currents of modes, some at a time.

    With the current's links of both parities, which modes and their partners read in turn.
    """
    deflation = node.inputs[0]
    operator, vectors = deflation.inputs[0], deflated_vectors(deflation)
    directions, links = directions_of(operator), links_bytes(lattice)
    host = solving_bytes(lattice, SLAB, 0) + deflation.cost.device_memory
    making = making_terms(lattice, directions, operator.parameters["solves"])
    smearing = {"links: current": int((SMEARING_FIELDS + 0.5) * links) * smeared_current(node)}
    blocks = SLAB_FIELDS * half_field_bytes(lattice, 3) * min(SLAB, vectors)
    terms = largest_of({"links: current": links, "blocks of modes": blocks}, smearing, making)
    work = low_modes_work(lattice, vectors, directions, SLAB)
    return Cost(host, sum(terms.values()), loops_bytes(lattice, vectors), work=work, terms=terms)


@of_lattice
def correlator_cost(node: Node, lattice: Lattice) -> Cost:
    """Cost of C(t), loops and condensates of all flavours, with errors."""
    return Cost(stored=8 * FLAVOUR_COUNT * (9 * lattice.time_extent + 4) + RECORD)


@of_lattice
def noise_cost(node: Node, lattice: Lattice) -> Cost:
    """Cost of moments of the noise of two pieces, and errors, of all flavours."""
    return Cost(stored=8 * FLAVOUR_COUNT * (21 * lattice.time_extent + 5) + RECORD)


@of_lattice
def average_cost(node: Node, lattice: Lattice) -> Cost:
    """Cost of means, errors, resampled correlators and their covariance."""
    options, time = options_of(node), lattice.time_extent
    configurations = len(node.inputs[0].over["config"])
    samples = options.get("samples") or configurations // options["jackknife_bin"]
    return Cost(stored=8 * FLAVOUR_COUNT * (10 * time + samples * time + time**2 + 4) + RECORD)
