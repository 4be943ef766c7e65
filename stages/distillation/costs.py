"""Costs of the stages of distillation: bytes on the host, on a GPU and in the store."""

from __future__ import annotations

from math import prod

from pipeline import Cost, Node, Pass
from stages.ensemble.wilson_operator import on_host
from stages.lqcd.distillation.eigenvectors import DTYPES, LaplaceSolver
from stages.lqcd.distillation.insertions import Insertions
from stages.lqcd.distillation.laph_dilution import LaphDilution
from stages.lqcd.kernels.gamma import COMPONENTS, SPINS
from stages.lqcd.lattice.geometry import Lattice
from stages.lqcd.lattice.sizes import COMPLEX, LINK_FIELDS, half_field_bytes, links_bytes
from stages.lqcd.spectroscopy.gammas import NAMES
from stages.mesons.costs import propagating_bytes
from stages.shared.costs import PROCESS, RECORD, of_lattice, options_of
from stages.shared.work import wilson_work

SUMS = 16 << 20
"""Of partial sums and results of products of eigenvectors."""

ITEMSIZE = {"double": COMPLEX, "single": COMPLEX // 2}
"""Of an element of the eigenvectors."""


@of_lattice
def eigenvectors_cost(node: Node, lattice: Lattice) -> Cost:
    """Cost of the eigensolve of a chunk's time slices.

    On the host with the links, or what smearing them takes.
    """
    options, slices = options_of(node), node.chunk["time"]
    solver = LaplaceSolver(options["vectors"], options["block"], dtype=DTYPES[options["precision"]])
    needed = solver.needed_bytes(lattice.sites_per_slice, slices)
    links = links_bytes(lattice)
    stored = vectors_bytes(lattice, slices, options["vectors"], options["precision"])
    work = (Pass("restarts", 10 * options["vectors"], float(stored)),)
    copied = links * slices // lattice.time_extent if slices < lattice.time_extent else 0
    terms = {f"Lanczos on {slices} time slices": needed, "their links": copied}
    memory = PROCESS + max(LINK_FIELDS * links, links + copied + needed)
    return Cost(memory, needed + copied, stored, work=work, terms=terms)


@of_lattice
def basis_cost(node: Node, lattice: Lattice) -> Cost:
    """Cost of the eigenvectors of all slices."""
    options = options_of(node.inputs[0])
    vectors, precision = options["vectors"], options["precision"]
    nbytes = vectors_bytes(lattice, lattice.time_extent, vectors, precision)
    return Cost(device_memory=nbytes, terms={f"eigenvectors ({vectors}, {precision})": nbytes})


def vectors_bytes(lattice: Lattice, slices: int, vectors: int, precision: str) -> int:
    """Eigenvectors of so many slices with their values and residuals."""
    sites = 2 * lattice.sites_per_slice * slices
    return 3 * sites * vectors * ITEMSIZE[precision] + 16 * slices * vectors + RECORD


def eigenvectors_of(basis: Node) -> int:
    """Number of eigenvectors of each slice that a node of `laplace_eigenvectors.laplace_basis` gives."""
    return int(options_of(basis.inputs[0])["vectors"])


@of_lattice
def elementals_cost(node: Node, lattice: Lattice) -> Cost:
    """Cost of elementals.

    Beside links and eigenvectors fields like them, displaced and times a phase, by tiles where they do not
    fit; for eigenvectors in single precision links in it, too.
    """
    basis, momenta, words = node.inputs[1], node.parameters["momenta"], node.parameters["displacements"]
    held = basis.cost.device_memory
    stored = elementals_bytes(lattice, len(momenta), len(words), eigenvectors_of(basis))
    insertions = Insertions(lattice, tuple(map(tuple, momenta)), tuple(words))
    single = insertions.longest > 0 and options_of(basis.inputs[0])["precision"] == "single"
    terms = {
        "products of eigenvectors": insertions.scratch_fields * held + SUMS,
        "links: single": links_bytes(lattice) // 2 * single,
    }
    memory = PROCESS + links_bytes(lattice) * LINK_FIELDS + 6 * held + stored
    work = (Pass("products", len(momenta) * len(words), float(held)),)
    return Cost(memory, sum(terms.values()), stored, work=work, terms=terms)


def elementals_bytes(lattice: Lattice, momenta: int, displacements: int, vectors: int) -> int:
    """Bytes of the elementals of all slices."""
    return COMPLEX * lattice.time_extent * momenta * displacements * vectors**2 + RECORD


@of_lattice
def solves_cost(node: Node, lattice: Lattice) -> Cost:
    """Cost of perambulators and of projections of noise.

    A block in the solver, its sources and projections; on the host also operator, eigenvectors and the
    result.
    """
    basis, columns = node.inputs[1:3]
    options, vectors, rhs = options_of(node), eigenvectors_of(basis), columns_of(columns)
    block = min(options["block"], rhs)
    settings = options["precision"], block, block, options["solver"], 2
    host, terms = propagating_bytes(node.inputs[0], lattice, *settings)
    projections = 2 * COMPLEX * lattice.time_extent * SPINS * vectors * block
    stored = projections_bytes(lattice, vectors, rhs)
    memory = host + basis.cost.device_memory + projections + 2 * stored
    operator = node.inputs[0].parameters
    work = wilson_work(lattice, operator["kappa"] or operator["mass"], node.parameters["solve"], rhs)
    terms["solutions of the block before"] = 2 * half_field_bytes(lattice, COMPONENTS) * block * (block < rhs)
    terms["projections"] = projections
    return Cost(memory, sum(terms.values()), stored, work=work, terms=terms)


def first_sources_cost(node: Node) -> Cost:
    """Cost of the eigenvectors on the host, in the tasks that take sources."""
    return Cost(memory=node.inputs[1].cost.device_memory)


def columns_of(columns: Node) -> int:
    """Right-hand sides of a chunk of a node that says which columns sources have."""
    options, sources = options_of(columns), columns.chunk["source"]
    if "dilution" not in options:
        return SPINS * int(options["eigenvectors"]) * sources
    scheme = LaphDilution.parse(options["dilution"])
    subsets = scheme.subsets(options["time_extent"], options["eigenvectors"])
    return subsets.spin * subsets.eigenvector * sources


def projections_bytes(lattice: Lattice, vectors: int, columns: int) -> int:
    """Bytes of the projections of right-hand sides on all eigenvectors, and of the residuals."""
    return COMPLEX * lattice.time_extent * SPINS * vectors * columns + 16 * columns + RECORD


@of_lattice
def insertion_cost(node: Node, lattice: Lattice) -> Cost:
    """Cost of generalised perambulators.

    A block in the solver, which takes more than the tiles of the products after it, and these products, by
    pairs of spins and of Dirac matrices; on the host also operator, eigenvectors, the solutions from all
    sources, and the result.
    """
    options, basis, sources = options_of(node), node.inputs[1], node.chunk["source"]
    vectors, momenta = eigenvectors_of(basis), len(options["momenta"])
    block = min(options["block"], SPINS * vectors)
    settings = options["precision"], block, block, options["solver"]
    _, terms = propagating_bytes(node.inputs[0], lattice, *settings)
    products = COMPLEX * lattice.time_extent * momenta * block**2 * (2 * SPINS**2 + len(NAMES))
    terms["solutions of the block before"] = 2 * half_field_bytes(lattice, COMPONENTS) * block
    terms["products of solutions"] = products
    device = sum(terms.values())
    solutions = 2 * half_field_bytes(lattice, COMPONENTS) * SPINS * vectors * sources
    operator = on_host(node.inputs[0], lattice, options["precision"])
    working = operator + basis.cost.device_memory + device
    counts = [len(options[name]) for name in ("separations", "momenta", "displacements")]
    stored = insertions_bytes(lattice, vectors, sources, *counts)
    memory = PROCESS + max(LINK_FIELDS * links_bytes(lattice), working + solutions) + stored
    return Cost(memory, device, stored, terms=terms)


def insertions_bytes(
    lattice: Lattice, vectors: int, sources: int, separations: int, momenta: int, displacements: int
) -> int:
    """Generalised perambulators of all Dirac matrices, and the residuals of both ends."""
    lines, columns = sources * separations, SPINS * vectors
    each = COMPLEX * lattice.time_extent * len(NAMES) * momenta * displacements * columns**2
    return lines * each + 16 * columns * (sources + lines) + RECORD


@of_lattice
def distilled_cost(node: Node, lattice: Lattice) -> Cost:
    """Cost of two-point functions source by source."""
    solved, fields, *_ = node.inputs
    return _contracted(node, lattice, solved.inputs[2], fields, node.chunk["source"])


@of_lattice
def stochastic_cost(node: Node, lattice: Lattice) -> Cost:
    """Cost of two-point functions of all pairs of noise vectors of a configuration."""
    _, columns, fields = node.inputs
    return _contracted(node, lattice, columns, fields, pairs_of(columns))


def pairs_of(columns: Node) -> int:
    """Times times pairs of noise vectors, of sources named like t8n0."""
    times = [label.split("n")[0] for label in map(str, columns.over["source"])]
    counts = [times.count(time) for time in dict.fromkeys(times)]
    return sum(count * (count - 1) // 2 for count in counts)


def _contracted(node: Node, lattice: Lattice, columns: Node, fields: Node, sources: int) -> Cost:
    """Cost of projections, elementals, and all open spins of a source.

    In the store all sixteen correlators and the matrix of the operators, of each source.
    """
    momenta, operators, words = (
        len(options_of(node)[name]) for name in ("momenta", "operators", "displacements")
    )
    vectors, time = eigenvectors_of(fields.inputs[1]), lattice.time_extent
    pairs = COMPLEX * time * (words * SPINS**2) ** 2 * momenta
    flavours = 1 + len(node.inputs[2:]) * (node.stage.name == "distilled_mesons")
    working = 2 * flavours * projections_bytes(lattice, vectors, columns_of(columns)) + 3 * pairs
    working += 2 * elementals_bytes(lattice, momenta, words, vectors)
    stored = COMPLEX * time * sources * momenta * (len(NAMES) + operators**2) + RECORD
    work = (Pass("products", sources * operators, float(working)),)
    return Cost(PROCESS + working, working, stored, work=work, terms={"contractions": working})


@of_lattice
def levels_cost(node: Node, lattice: Lattice) -> Cost:
    """Cost of energies of levels with their errors."""
    counts = (len(node.parameters["momenta"]), lattice.time_extent, len(node.parameters["operators"]))
    return Cost(stored=32 * prod(counts) + RECORD)
