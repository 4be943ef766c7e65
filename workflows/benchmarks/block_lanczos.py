"""Block Lanczos for several block sizes on one spectrum, as a Markdown table.

    python -m workflows.benchmarks.block_lanczos [--backend cuda] [--lattice 16 16 16 32] [--vectors 64]
    [--block 1 16]

B = -D_eo D_oe of HISQ links of one quenched configuration, in double precision. A small run of each block
size compiles the kernels first. Columns: restarts and applications of B to one vector; wall time and its
ratio to the first row; GFLOP/s of everything; shares of the wall time that operator, products with the
basis and the rest take (each call is timed with the device idle before and after); what the operator and
the products reach of the machine's copy bandwidth, in bytes with perfect reuse.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

from stages.lqcd.dirac.staggered import SquaredDslash
from stages.lqcd.eigen.block_lanczos import BlockLanczos
from stages.lqcd.eigen.eigenpairs import Eigenpairs
from stages.lqcd.kernels.directions import HISQ_DIRECTIONS
from stages.lqcd.kernels.dispatch import around_kernels
from stages.lqcd.lattice.geometry import Lattice
from workflows.benchmarks.dslash import FLOPS_PER_SITE
from workflows.benchmarks.machine import Machine, machine_of
from workflows.benchmarks.script import head, options, quenched, row, staggered

SEED = 271
COLUMNS = (
    *("block", "subspace", "degree", "restarts", "matvecs", "seconds", "ratio", "GFLOP/s"),
    *("operator", "basis", "rest", "operator / copy", "basis / copy"),
)


class Meter:
    """Seconds, floating-point operations and bytes of calls that are waited for."""

    def __init__(self, machine: Machine) -> None:
        self.wait = machine.xp.cuda.Device().synchronize if machine.backend == "cuda" else lambda: None
        self.seconds = self.flops = self.bytes = 0.0

    def call(self, work: Any, flops: float, size: float) -> Any:
        self.wait()
        started = time.perf_counter()
        result = work()
        self.wait()
        self.seconds += time.perf_counter() - started
        self.flops, self.bytes = self.flops + flops, self.bytes + size
        return result


class MeteredOperator:
    """An operator whose applications are metered."""

    def __init__(self, operator: SquaredDslash, meter: Meter) -> None:
        self.operator, self.meter = operator, meter
        self.shape, self.dtype, self.hermitian, self.xp = operator.shape, operator.dtype, True, operator.xp

    def apply(self, x: Any, out: Any = None) -> Any:
        return self._metered(x, lambda: self.operator.apply(x, out))

    def affine(self, a: float, b: float, x: Any, out: Any = None) -> Any:
        return self._metered(x, lambda: self.operator.affine(a, b, x, out))

    def _metered(self, x: Any, work: Any) -> Any:
        n, sites = x.shape[-1], 2 * self.shape[0]
        numbers = HISQ_DIRECTIONS * 9 / n + 2 * 3
        return self.meter.call(work, n * FLOPS_PER_SITE * sites, n * numbers * self.dtype.itemsize * sites)


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
    arguments = parsed()
    machine, lattice = machine_of(arguments.backend), Lattice(tuple(arguments.lattice))
    chain: dict[str, Any] = {"beta": arguments.beta, "seed": SEED, "sweeps": arguments.sweeps}
    thin = quenched(lattice, "block lanczos", **chain, xp=machine.xp)
    operator = SquaredDslash(staggered(thin, lattice))
    copy = machine.copy_bandwidth()
    print(f"{machine.name}, copy {copy:.0f} GB/s; {lattice}, beta = {arguments.beta:g}, ", end="")
    print(f"{arguments.sweeps} sweeps; {arguments.vectors} vectors to {arguments.tolerance:g}")
    print(f"\n{head(*COLUMNS)}", flush=True)
    spectra, first = [], 0.0
    for block in arguments.block:
        warm_up = BlockLanczos(2, block, degree=2, max_restarts=1)
        warm_up.solve(operator, machine.xp, on_failure="return")
        products, applications = Meter(machine), Meter(machine)
        method = BlockLanczos(
            *(arguments.vectors, block, arguments.tolerance, arguments.subspace, arguments.degree),
        )
        report = (lambda *cycle: print("  ", *cycle, flush=True)) if arguments.verbose else None
        metered: Any = MeteredOperator(operator, applications)
        processor = time.process_time()
        with products_metered(products):
            pairs = method.solve(metered, machine.xp, report)
        processor = time.process_time() - processor
        first = first or pairs.seconds
        spectra.append(pairs.values)
        print(measured(block, pairs, first, applications, products, copy), flush=True)
        if arguments.verbose:
            print(f"{processor:.1f} s on all processors; {pairs.extras} {pairs.window}", flush=True)
        del pairs
    spread = max(float(np.abs(values / spectra[0] - 1).max()) for values in spectra)
    print(
        f"\nEigenvalues {spectra[0][0]:.6g} to {spectra[0][-1]:.6g}; blocks differ by {spread:.1g} at most."
    )


def measured(
    block: int, pairs: Eigenpairs, first: float, applications: Meter, products: Meter, copy: float
) -> str:
    """A row of the table; first: seconds of the first row."""
    total, work = pairs.seconds, applications.flops + products.flops
    shares = [applications.seconds / total, products.seconds / total]
    counts = (block, pairs.extras["subspace"], pairs.degree, pairs.restarts, pairs.matvecs)
    rates = [meter.bytes / meter.seconds / 1e9 / copy for meter in (applications, products)]
    return row(
        *map(str, counts),
        *(f"{total:.1f}", f"{first / total:.2f}", f"{work / total / 1e9:.0f}"),
        *(f"{100 * share:.0f} %" for share in (*shares, 1 - sum(shares))),
        *(f"{rate:.2f}" for rate in rates),
    )


def parsed() -> argparse.Namespace:
    parser = options(__doc__)
    parser.add_argument("--beta", type=float, default=6.0, help="of the Wilson action (default 6.0)")
    parser.add_argument("--sweeps", type=int, default=20, help="of the heat bath (default 20)")
    parser.add_argument("--vectors", type=int, default=64)
    parser.add_argument("--block", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--tolerance", type=float, default=1e-10)
    parser.add_argument("--degree", type=int)
    parser.add_argument("--subspace", type=int)
    parser.add_argument("--verbose", action="store_true", help="each restart cycle")
    return parser.parse_args()


if __name__ == "__main__":
    main()
