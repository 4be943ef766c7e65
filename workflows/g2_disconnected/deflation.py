"""Nodes of the section `deflation`: eigenvectors once per configuration, read by every solve."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from functools import partial

from pipeline import Cost, Node, Place, Workflow
from pipeline.declare.coordinates import Coordinate
from stages.loops.deflation_space import deflation, deflation_space, spectrum
from stages.lqcd.lattice.geometry import Lattice
from workflows.g2_disconnected.schema import Deflation
from workflows.shared import footprint


def add_deflation(
    workflow: Workflow, section: Deflation, links: Node, lattice: Lattice, used: int | None = None
) -> Node:
    """The node that solves take: all vectors of the space, or its lowest `used`."""
    space = add_space(workflow, section, links, lattice, {})
    workflow.add(spectrum, space, place=Place(cost=Cost(stored=footprint.RECORD)))
    kept = footprint.basis_bytes(lattice, section.vectors, section.precision)
    return workflow.add(deflation, links, space, place=Place(cost=Cost(device_memory=kept)), vectors=used)


def add_space(
    workflow: Workflow,
    section: Deflation,
    links: Node,
    lattice: Lattice,
    over: Mapping[str, Sequence[Coordinate]],
) -> Node:
    """The eigenvectors in the store, of all configurations unless `over` says of which."""
    return workflow.add(
        deflation_space,
        links,
        place=Place(
            over=over,
            cost=Cost(
                memory=footprint.eigensolve_memory(lattice, section.vectors, section.block),
                device_memory=footprint.eigensolve_device_memory(lattice, section.vectors, section.block),
                stored=footprint.space_bytes(lattice, section.vectors, section.precision),
                remedy=partial(_vectors_that_fit, section, lattice),
            ),
        ),
        **section.model_dump(),
    )


def _vectors_that_fit(section: Deflation, lattice: Lattice, room: int, on_device: bool) -> str:
    """What to write for `deflation.vectors` where a task has so many bytes."""
    projected = footprint.eigensolve_device_memory if on_device else footprint.eigensolve_memory
    counts = range(1, section.vectors + 1)
    most = bisect_right(counts, room, key=lambda vectors: projected(lattice, vectors, section.block))
    if not most:
        return "not even one deflation vector fits"
    return f"{most} vectors fit: lower `deflation.vectors`, {section.vectors}"
