"""Nodes that every workflow with Wilson-clover quarks has: the operator, and the hierarchy of multigrid."""

from __future__ import annotations

from typing import Any

from pipeline import Cost, Node, Place, Workflow
from stages.ensemble.wilson_operator import wilson_operator
from stages.lqcd.lattice.geometry import Lattice
from stages.mesons.multigrid_setup import multigrid_hierarchy, multigrid_setup
from workflows.mesons import footprint as meson_footprint
from workflows.mesons.schema import MultigridSection, Quark


def add_operator(
    workflow: Workflow, quark: Quark, precision: str, configuration: Node, lattice: Lattice
) -> Node:
    """The Wilson-clover operator of each configuration, for solves in this precision."""
    return workflow.add(
        wilson_operator,
        configuration,
        place=Place(
            name="operator", cost=Cost(device_memory=meson_footprint.operator_memory(lattice, precision))
        ),
        csw=quark.clover,
        stout=quark.stout.model_dump() if quark.stout else None,
        **quark.model_dump(include={"kappa", "mass", "xi0", "nu", "boundary"}),
    )


def add_hierarchy(
    workflow: Workflow, section: MultigridSection, precision: str, operator: Node, lattice: Lattice
) -> Node:
    """The setup in the store, and the hierarchy that solves take of it."""
    options = hierarchy_options(section, lattice)
    levels = options["levels"]
    setup = workflow.add(
        multigrid_setup,
        operator,
        place=Place(
            cost=Cost(
                memory=meson_footprint.setup_memory(lattice, precision, levels),
                device_memory=meson_footprint.setup_device_memory(lattice, levels),
                stored=meson_footprint.setup_bytes(lattice, levels),
            )
        ),
        **options,
    )
    kept = meson_footprint.setup_bytes(lattice, levels)
    return workflow.add(
        multigrid_hierarchy, operator, setup, place=Place(cost=Cost(device_memory=kept)), **options
    )


def hierarchy_options(section: MultigridSection, lattice: Lattice) -> dict[str, Any]:
    """Levels and seed, as stages take them."""
    return {"levels": section.plain(lattice), "seed": section.seed}
