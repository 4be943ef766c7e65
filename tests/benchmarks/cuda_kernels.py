"""Time and check the CUDA kernels of the staggered operator and of block linear algebra, as Markdown tables.

    python tests/benchmarks/cuda_kernels.py [--lattice 32 32 32 48] [--rhs 1 8 16 32 64]

First table: the dslash in picoseconds per (site of the output parity, right-hand side), also with
`a * diagonal` added, as a fraction of the copy bandwidth of the same run, and its error against NumPy on
random sites. Second table: every other kernel as such a fraction. Bytes are counted once per array (perfect
reuse). Last, what the host spends on one call, on a lattice so small that the device keeps up.
"""

from __future__ import annotations

from functools import partial

import cupy
import numpy as np

from script import LARGE, PrintedTable, arguments_of, host_seconds
from stages.lqcd.kernels import hisq_dslash, slice_products, smearing
from stages.lqcd.kernels.cuda import link_fields
from stages.lqcd.kernels.directions import HISQ_DIRECTIONS
from stages.lqcd.kernels.dispatch import Array, as_numpy
from stages.lqcd.kernels.link_forms import Packing
from stages.lqcd.lattice.geometry import Lattice
from workflows.benchmarks import block_blas as blas_family
from workflows.benchmarks.machine import Device, Work, random_field
from workflows.benchmarks.speed import DTYPES, Bench, SiteCost, streaming
from workflows.benchmarks.staggered import dslash_cost, random_links

SMALLEST = Lattice((4, 4, 4, 4))


def main() -> None:
    """Print the tables for the device at hand."""
    arguments = arguments_of(__doc__, lattice=LARGE, options={"rhs": [1, 8, 16, 32, 64]})
    device, lattice, widths = Device(), arguments.lattice, tuple(arguments.rhs)
    bench = Bench(device, lattice, lattice, widths, tuple(DTYPES), device.copy_bandwidth())
    print(f"{device.name}, CuPy {cupy.__version__}, lattice {lattice}, copy {bench.copy_bandwidth:.0f} GB/s")
    dslash_table(bench)
    for precision, dtype in bench.dtypes.items():
        fractions: dict[str, list[float]] = {}
        for rhs in widths:
            for name, (work, cost) in kernels(bench, dtype, rhs).items():
                fractions.setdefault(name, []).append(fraction_of_copy(bench, work, cost, rhs))
        print(f"\n{precision}: fractions of the copy bandwidth")
        table = PrintedTable("kernel", *(f"N = {rhs}" for rhs in widths))
        for name, row in fractions.items():
            table.add(name, *row)
    out, field, links = (
        random_field(device, (2, lattice.half_volume, 3, 3), np.complex128) for _ in range(3)
    )
    seconds = device.seconds(lambda: smearing.add_staple(out, field, links, lattice, 0, 3, 0.1))
    fraction = 4 * out.nbytes / seconds / 1e9 / bench.copy_bandwidth
    print(f"\nadd_staple, double: {1e3 * seconds:.2f} ms, {fraction:.2f} of copy bandwidth")
    small = Bench(device, SMALLEST, SMALLEST, (8,), ("single",), bench.copy_bandwidth)
    for name, (work, _) in kernels(small, DTYPES["single"], 8).items():
        print(f"host, {name}: {1e6 * host_seconds(device, work):.0f} us a call")


def dslash_table(bench: Bench) -> None:
    """Print the first table."""
    device, lattice = bench.machine, bench.lattice
    table = PrintedTable("precision", "N", "ps", "fused, ps", "of copy", "error")
    for precision, dtype in bench.dtypes.items():
        fields = random_links(bench.machine, bench.lattice)
        links = cupy.empty((lattice.half_volume, HISQ_DIRECTIONS, 3, 3), dtype)
        link_fields.in_tiles(*fields, lattice, 0, links, (1, 1, 1, 1))
        for rhs in bench.widths:
            form = Packing(block=rhs).staggered(precision, HISQ_DIRECTIONS)
            packed = hisq_dslash.pack_fields(*fields, lattice, 0, dtype, form)
            x = random_field(device, (lattice.half_volume, 3, rhs), dtype)
            out, unit = cupy.full_like(x, np.nan), 1e12 / (lattice.half_volume * rhs)
            work = partial(hisq_dslash.hisq_dslash, packed, x, out)
            seconds = device.seconds(work)
            error = dslash_error(lattice, links, x, out)
            fused = device.seconds(partial(work, diagonal=out, a=0.1, b=-1))
            rate = dslash_cost(rhs, dtype.itemsize).perfect_bytes / (unit * seconds) * 1e3
            cells = unit * seconds, unit * fused, rate / bench.copy_bandwidth, error
            table.add(precision, rhs, *cells)


def dslash_error(lattice: Lattice, links: Array, x: Array, out: Array) -> float:
    """Relative error of parity 0 of the dslash on 500 random sites, against NumPy in double."""
    sites = np.random.default_rng(31).integers(lattice.half_volume, size=500)
    hops = [(mu, step) for mu in range(4) for step in (1, -1, 3, -3)]
    neighbours = np.stack([lattice.neighbour(0, mu, step)[sites] for mu, step in hops], axis=1)
    u, v = as_numpy(links[sites]).astype(complex), as_numpy(x[cupy.asarray(neighbours)]).astype(complex)
    expected = np.einsum("sdij,sdjn->sin", u, v)
    return float(np.linalg.norm(as_numpy(out[sites]) - expected) / np.linalg.norm(expected))


def kernels(bench: Bench, dtype: np.dtype, rhs: int) -> dict[str, tuple[Work, SiteCost]]:
    """Calls and costs of the family's kernels, and of the current, whose links count once a block."""
    device, lattice = bench.machine, bench.lattice
    x, y = (random_field(device, (lattice.half_volume, 3, rhs), dtype) for _ in range(2))
    links = random_field(device, (4, lattice.half_volume, 3, 3), dtype)
    current = partial(slice_products.one_link_current, links, x, y, lattice, 0)
    return {
        **blas_family.kernels(bench, dtype, rhs),
        "one_link_current": (current, streaming(0, 2 + 12 / rhs, dtype)),
    }


def fraction_of_copy(bench: Bench, work: Work, cost: SiteCost, rhs: int) -> float:
    seconds = bench.machine.seconds(work)
    return cost.perfect_bytes * bench.lattice.half_volume * rhs / seconds / 1e9 / bench.copy_bandwidth


if __name__ == "__main__":
    main()
