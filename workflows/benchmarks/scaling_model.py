"""A model of the time of an iteration of batched CG on many GPUs, from what was measured on one and two.

    python -m workflows.benchmarks.scaling_model

t is cut between the GPUs of a machine, which read each other's memory through NVLink, then z, y and x between
machines, over a network. docs/scaling.md says what of it is measured and what is assumed.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log2, prod

from workflows.benchmarks.script import PrintedTable

MACHINE = 8
"""GPUs that see each other's memory."""

NUMBER = 24
"""Bytes of a site and right-hand side in single precision."""

NVLINK, NVLINK_SLICES = 335e9, 4
"""Bytes a second that kernels of two GPUs read from each other; slices that they read at a cut, one twice."""

MEETING, MEETINGS = 10e-6, 4
"""Seconds of a meeting of GPUs, and their number in an iteration."""

SHOWN = 0.07
"""Part of what NVLink carries that does not hide behind the work on sites."""

NETWORK, NETWORK_SLICES, MESSAGE, STEP = 50e9, 3, 5e-6, 3e-6
"""Assumed: bytes a second of each GPU, slices of a face; seconds of a message, and of a step of a sum."""


@dataclass(frozen=True)
class Kernels:
    """Seconds for a site of a parity and a right-hand side: of a dslash, and of the rest of an iteration."""

    rhs: int
    dslash: float
    rest: float


ONE = Kernels(1, 392e-12, 52e-12)
SIXTEEN = Kernels(16, 52.7e-12, 64.5e-12)


def local_extents(extents: tuple[int, ...], gpus: int) -> tuple[int, ...]:
    """Extents of what a GPU holds: t is cut in a machine, then z, y and x in two in turn."""
    x, y, z, t = extents
    inside = min(gpus, MACHINE)
    cuts = [1, 1, 1]
    for number in range(round(log2(gpus // inside))):
        cuts[number % 3] *= 2
    return x // cuts[2], y // cuts[1], z // cuts[0], t // inside


def iteration(kernels: Kernels, extents: tuple[int, ...], gpus: int) -> float:
    """Seconds of an iteration on the whole lattice of these extents."""
    local = local_extents(extents, gpus)
    vectors = kernels.rhs * prod(local) / 2
    work, rest = kernels.dslash * vectors, kernels.rest * vectors
    if gpus == 1:
        return 2 * work + rest
    inside, machines = min(gpus, MACHINE), ceil(gpus / MACHINE)
    face = NUMBER * kernels.rhs * prod(local[:3]) / 2
    nvlink = 2 * NVLINK_SLICES * face / NVLINK
    cut = [axis for axis in range(3) if local[axis] < extents[axis]]
    sent = sum(2 * NETWORK_SLICES * NUMBER * kernels.rhs * prod(local) / 2 / local[axis] for axis in cut)
    network = sent / NETWORK + MESSAGE * bool(cut)
    dslash = max(work, nvlink, network) + SHOWN * nvlink * (inside > 1)
    sums = 2 * STEP * ceil(log2(machines)) if machines > 1 else 0.0
    return 2 * dslash + rest + MEETINGS * MEETING + sums


def main() -> None:
    """Print the model for what was measured, for 40^4 on each GPU, and for 96^3 x 192 on up to 512."""
    table = PrintedTable("lattice", "GPUs", "N", "us", "efficiency")
    for kernels in (ONE, SIXTEEN):
        for extents, gpus, share in (
            ((32, 32, 32, 48), 1, 1),
            ((32, 32, 32, 96), 2, 1),
            ((32, 32, 32, 48), 2, 2),
            *(((40, 40, 40, 40 * gpus), gpus, 1) for gpus in (2, 4, 8)),
            *(((40, 40, 80, 320), 16, 1), ((80, 80, 80, 320), 64, 1)),
            *(((96, 96, 96, 192), gpus, gpus) for gpus in (16, 32, 64, 128, 256, 512)),
        ):
            took = iteration(kernels, extents, gpus)
            alone = iteration(kernels, (*extents[:3], extents[3] * share // gpus), 1)
            name = "x".join(map(str, extents))
            table.add(name, gpus, kernels.rhs, 1e6 * took, alone / share / took)


if __name__ == "__main__":
    main()
