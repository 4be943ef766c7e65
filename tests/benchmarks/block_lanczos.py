"""Block Lanczos for several block sizes on one spectrum, as a Markdown table.

    python tests/benchmarks/block_lanczos.py [--backend cuda] [--lattice 16 16 16 32] [--vectors 64]
    [--block 1 16]

B = -D_eo D_oe of HISQ links of one quenched configuration, in double precision. A small run of each block
size compiles the kernels first. Columns: restarts and applications of B to one vector; wall time and its
ratio to the first row; joules of the device; GFLOP/s of everything; shares of the wall time that operator,
products with the basis and the rest take (each call is timed with the device idle before and after); what the
operator and the products reach of the machine's copy bandwidth, in bytes with perfect reuse.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from script import SMALL, PrintedTable, arguments_of, metered, quenched, staggered
from stages.lqcd.dirac.operator import Step, Storage
from stages.lqcd.dirac.staggered import SquaredDslash
from stages.lqcd.eigen.block_lanczos import BlockLanczos
from stages.lqcd.eigen.eigenpairs import Eigenpairs
from stages.lqcd.kernels.directions import HISQ_DIRECTIONS
from stages.lqcd.kernels.dispatch import around_kernels
from workflows.benchmarks.machine import Machine
from workflows.benchmarks.staggered import FLOPS_PER_SITE

SEED = 271
COLUMNS = (
    *("block", "subspace", "degree", "restarts", "matvecs", "seconds", "ratio", "J", "GFLOP/s"),
    *("operator", "basis", "rest", "operator / copy", "basis / copy"),
)


class Meter:
    """Seconds, floating-point operations and bytes of calls that are waited for."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.seconds = self.flops = self.bytes = 0.0

    def call(self, work: Any, flops: float, size: float) -> Any:
        results: list[Any] = []
        self.seconds += self.machine.wall_seconds(lambda: results.append(work()))
        self.flops, self.bytes = self.flops + flops, self.bytes + size
        return results[0]


class MeteredOperator:
    """An operator whose applications are metered."""

    def __init__(self, operator: SquaredDslash, meter: Meter) -> None:
        self.operator, self.meter = operator, meter
        self.shape, self.dtype, self.hermitian, self.xp = operator.shape, operator.dtype, True, operator.xp

    def apply(self, x: Any, out: Any = None) -> Any:
        return self.metered(x, lambda: self.operator.apply(x, out))

    def storage(self, name: str) -> Storage:
        return MeteredStorage(self)

    def metered(self, x: Any, work: Any) -> Any:
        n, sites = x.shape[-1], 2 * self.shape[0]
        numbers = HISQ_DIRECTIONS * 9 / n + 2 * 3
        return self.meter.call(work, n * FLOPS_PER_SITE * sites, n * numbers * self.dtype.itemsize * sites)


class MeteredStorage(Storage):
    """Whole fields, whose products are metered one by one."""

    operator: MeteredOperator

    def product(self, x: Any, out: Any, dots: Any = None, a: float = 0.0, b: float = 1.0) -> Step:
        step = self.operator.operator.application(x, out, dots, a, b)
        return lambda: self.operator.metered(x, step)


def product_cost(name: str, *operands: Any) -> tuple[float, float]:
    """Floating-point operations and bytes of a product with a basis."""
    if name == "project":
        V, x = operands
        return (8.0 * V.size * x.shape[-1] if V.shape[-1] else 0.0), V.size * V.itemsize + x.nbytes
    if name == "add_combination":
        out, V, C = operands
        return 8.0 * V.size * C.shape[1], V.size * V.itemsize + 2 * out.nbytes
    V, Q = operands
    return 8.0 * V.size * Q.shape[1], V.size * V.itemsize * (1 + Q.shape[1] / Q.shape[0])


def products_metered(meter: Meter) -> Any:
    """While this context lasts, products with a basis are metered."""

    def wrap(kernel: Any) -> Any:
        if not kernel.__module__.endswith(".basis"):
            return kernel
        return lambda *operands: meter.call(
            lambda: kernel(*operands), *product_cost(kernel.__name__, *operands)
        )

    return around_kernels(wrap)


def main() -> None:
    """Print the table of the run that the arguments name."""
    method = {"vectors": 64, "block": [1, 4, 16], "tolerance": 1e-10, "degree": int, "subspace": int}
    options = {"beta": 6.0, "sweeps": 20, **method}
    arguments = arguments_of(__doc__, lattice=SMALL, machine="cpu", options=options)
    machine, lattice = arguments.machine, arguments.lattice
    chain: dict[str, Any] = {"beta": arguments.beta, "seed": SEED, "sweeps": arguments.sweeps}
    thin = quenched(lattice, "block lanczos", **chain, xp=machine.xp)
    operator = SquaredDslash(staggered(thin, lattice))
    copy = machine.copy_bandwidth()
    print(f"{machine.name}, copy {copy:.0f} GB/s; {lattice}, beta = {arguments.beta:g}, ", end="")
    print(f"{arguments.sweeps} sweeps; {arguments.vectors} vectors to {arguments.tolerance:g}")
    table, spectra, first = PrintedTable(*COLUMNS), [], 0.0
    for block in arguments.block:
        BlockLanczos(2, block, degree=2, max_restarts=1).solve(operator, on_failure="return")
        products, applications = Meter(machine), Meter(machine)
        settings = arguments.tolerance, arguments.subspace, arguments.degree
        operand: Any = MeteredOperator(operator, applications)
        with products_metered(products):
            lanczos = BlockLanczos(arguments.vectors, block, *settings)
            pairs, joules = metered(machine.backend, partial(lanczos.solve, operand))
        first = first or pairs.seconds
        spectra.append(pairs.values)
        table.add(block, *cells(pairs, first, joules, (applications, products), copy))
        del pairs
    spread = max(float(np.abs(values / spectra[0] - 1).max()) for values in spectra)
    print(
        f"\nEigenvalues {spectra[0][0]:.6g} to {spectra[0][-1]:.6g}; blocks differ by {spread:.1g} at most."
    )


def cells(
    pairs: Eigenpairs, first: float, joules: float | None, meters: tuple[Meter, Meter], copy: float
) -> tuple[object, ...]:
    """A row of the table behind the block's size; first: seconds of the first row."""
    total = pairs.seconds
    shares = [meter.seconds / total for meter in meters]
    return (
        *(
            pairs.extras["subspace"],
            pairs.degree,
            pairs.restarts,
            pairs.matvecs,
            total,
            first / total,
            joules,
        ),
        sum(meter.flops for meter in meters) / total / 1e9,
        *(f"{100 * share:.0f} %" for share in (*shares, 1 - sum(shares))),
        *(meter.bytes / meter.seconds / 1e9 / copy for meter in meters),
    )


if __name__ == "__main__":
    main()
