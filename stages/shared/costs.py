"""Parts that cost functions of stages share: a node's lattice and parameters, and sizes of processes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import wraps
from math import ceil
from typing import Any

from pipeline import Cost, Node
from pipeline.declare.parameter import flattened
from stages.lqcd.kernels.cuda.devices.partition import PAGE, check_slices, most_gpus
from stages.lqcd.lattice.geometry import Lattice

PROCESS = 300_000_000
"""Bytes of a worker with its compiled kernels, before any field."""
RECORD = 4_000
"""Bytes of the attributes of a chunk."""
DEFLATING = 3
"""Blocks that a deflated solve takes beside: sources as they were, and two while it corrects odd sites."""


@dataclass(frozen=True)
class TimeSlices:
    """A lattice that GPUs share (`pipeline.declare.node.Shares`), cut in t at whole slices."""

    extents: tuple[int, int, int, int]
    """Sites along x, y, z, t."""

    @property
    def most(self) -> int:
        """GPUs that can share it."""
        return most_gpus(self.extents[3])

    def check(self, gpus: int) -> None:
        """Raise InputError where it is too short in t for so many GPUs."""
        check_slices(self.extents[3], gpus)

    def on_each(self, nbytes: int, gpus: int) -> int:
        """Bytes of a field on that GPU which holds most, in whole pages.

        What has less than a page for each GPU lies on the first.
        """
        t = self.extents[3]
        return nbytes if nbytes < gpus * PAGE else PAGE * ceil(nbytes * ceil(t / gpus) / t / PAGE)

    def spread(self) -> AbstractContextManager[None]:
        """While the block runs, new fields lie on all GPUs of this process."""
        from stages.lqcd.kernels.cuda.devices.group import spread_in_worker  # needs CuPy

        return spread_in_worker(self.extents)

    def gather(self) -> AbstractContextManager[None]:
        """While the block runs, within one of `spread`, new fields lie on the first of them."""
        from stages.lqcd.kernels.cuda.devices.group import spread_in_worker  # needs CuPy

        return spread_in_worker(None)


def of_lattice(cost: Callable[[Node, Lattice], Cost]) -> Callable[[Node], Cost]:
    """The cost function of nodes on a lattice: nothing where no upstream node says of what extents it is."""

    @wraps(cost)
    def cost_of(node: Node) -> Cost:
        lattice = lattice_of(node)
        return replace(cost(node, lattice), shares=TimeSlices(lattice.extents)) if lattice else Cost()

    return cost_of


def lattice_of(node: Node) -> Lattice | None:
    """Lattice of the nearest node upstream, or the node itself, that has a parameter `extents`."""
    if extents := node.parameters.get("extents"):
        x, y, z, t = extents
        return Lattice((x, y, z, t))
    return next((lattice for each in node.inputs if (lattice := lattice_of(each))), None)


def options_of(node: Node) -> dict[str, Any]:
    """A node's parameters by the names that they have in keys."""
    return flattened(node.stage.parameters, node.parameters)


def deflated_vectors(deflation: Node) -> int:
    """Number of the space's vectors that a node of `stages.loops.deflation_space.deflation` gives."""
    return options_of(deflation)["vectors"] or options_of(deflation.inputs[1])["vectors"]


def largest_of(*phases: dict[str, int]) -> dict[str, int]:
    """Terms of the phase of a task that takes most of a GPU, those of no bytes left out."""
    most = max(phases, key=lambda terms: sum(terms.values()))
    return {name: nbytes for name, nbytes in most.items() if nbytes}


def small(node: Node) -> Cost:
    """Cost of a stage that stores some numbers."""
    return Cost(stored=RECORD)
