"""The node of current insertions in a workflow of distillation."""

from __future__ import annotations

from pipeline import Cost, Place, Workflow
from stages.distillation.current_insertion import current_insertion
from stages.lqcd.kernels.gamma import SPINS
from stages.lqcd.lattice.geometry import Lattice
from workflows.laph_mesons import footprint as laph_footprint
from workflows.laph_mesons.insertion_schema import InsertionSection
from workflows.laph_mesons.schema import LaphMesons


def add_insertions(
    workflow: Workflow, parameters: LaphMesons, section: InsertionSection, lattice: Lattice
) -> None:
    """Generalised perambulators from the sources and systems of the perambulators."""
    solves, distillation, sources = parameters.solves, parameters.distillation, parameters.sources.chunk
    upstream = ("operator", "basis", "columns", "multigrid_hierarchy")
    counts = [len(values) for _, values in section]
    momenta, k = len(section.momenta), distillation.vectors
    method = (min(solves.block, SPINS * k), solves.solver)
    sizes = (k, *method, sources, momenta, solves.precision, distillation.precision)
    stored = laph_footprint.insertions_bytes(lattice, k, sources, *counts)
    workflow.add(
        current_insertion,
        *[workflow.nodes[name] for name in upstream if name in workflow.nodes],
        place=Place(
            cost=Cost(
                memory=laph_footprint.inserting_memory(lattice, *sizes) + stored,
                device_memory=laph_footprint.inserting_device_memory(lattice, *method, momenta),
                stored=stored,
            )
        ),
        **section.model_dump(),
        **solves.model_dump(),
    )
