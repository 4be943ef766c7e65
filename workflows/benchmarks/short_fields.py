"""Time and check what a double-half solve of HISQ quarks is made of, as Markdown tables.

    python -m workflows.benchmarks.short_fields [--lattice 32 32 32 48] [--rhs 1 4 8 16 32]

First, products on one parity in picoseconds per (site of the output parity, right-hand side), in every form
of links and fields, in the shape in use and in others, with the bytes of perfect reuse, and the error of the
result against the decoded operands in double on random sites. A product into 20 bits adds `a * diagonal` and
sums dots, as the second of an application does; the last column is the error of these. Then the updates of
batched CG, in single precision and on short fields.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import cupy
import numpy as np

from stages.lqcd.gauge.reunitarise import to_u3
from stages.lqcd.kernels import cg_update, hisq_dslash
from stages.lqcd.kernels.cg_update import CGCoefficients
from stages.lqcd.kernels.cuda import cg_update as cuda_updates
from stages.lqcd.kernels.cuda import columns, hisq_packing
from stages.lqcd.kernels.cuda import hisq_dslash as cuda
from stages.lqcd.kernels.cuda.compile import compile_all
from stages.lqcd.kernels.cuda.hisq_packing import Form, PackedLinks
from stages.lqcd.kernels.cuda.launch import Launch
from stages.lqcd.kernels.cuda.tiles import DslashShape
from stages.lqcd.kernels.directions import displacements
from stages.lqcd.kernels.short_field import ShortField, empty, to_short, whole
from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice
from workflows.benchmarks.machine import Device
from workflows.benchmarks.script import LARGE, PrintedTable, arguments_of

SINGLE, DOUBLE = np.dtype(np.complex64), np.dtype(np.complex128)
LINK_BYTES = {
    "Links18": 16 * 18,
    "Links13": 8 * (18 + 13),
    "Links14": 8 * (18 + 14),
    "Links9": 8 * (18 + 9),
    "ShortLinks9": 8 * 16,
}
"""Reals, or 32-bit words, of a site's links."""


@dataclass(frozen=True)
class Case:
    """A product: number of right-hand sides, precision of links, form, and whether it sums dots."""

    n: int
    dtype: np.dtype
    form: Form
    dots: bool

    @property
    def nbytes(self) -> float:
        """Bytes per site and right-hand side if every number is moved once."""
        real = self.dtype.itemsize / 2
        read, written = (6 * real if kind == "Whole" else 16 for kind in (self.form.x, self.form.out))
        return LINK_BYTES[self.form.links] * real / self.n + (1 + self.dots) * read + written


def main() -> None:
    """Print the tables for the device at hand."""
    arguments = arguments_of(__doc__, lattice=LARGE, options={"rhs": [1, 4, 8, 16, 32]})
    device, lattice = Device(), arguments.lattice
    copy = device.copy_bandwidth()
    print(f"{device.name}, CuPy {cupy.__version__}, lattice {lattice}, copy {copy:.0f} GB/s", flush=True)
    launches = {
        (case, shape): launch(lattice, case, shape)
        for n in arguments.rhs
        for case in cases(n)
        for shape in shapes(lattice, case)
    }
    began = time.perf_counter()
    compile_all([*launches.values(), *update_launches(lattice, arguments.rhs)])
    print(f"{len(launches)} products compiled in {time.perf_counter() - began:.0f} s")
    products(device, lattice, launches, copy)
    updates(device, lattice, arguments.rhs, copy)


def cases(n: int) -> Iterator[Case]:
    """The forms worth timing for so many right-hand sides."""
    narrow = n <= hisq_dslash.NARROW
    yield Case(n, DOUBLE, hisq_packing.FULL, False)
    yield Case(n, SINGLE, hisq_packing.FULL, False)
    if narrow:
        yield from (Case(n, DOUBLE, form, False) for form in (hisq_packing.FOURTEEN, hisq_packing.NINE))
        yield from (Case(n, SINGLE, form, False) for form in (hisq_packing.THIRTEEN, hisq_packing.NINE))
    single = hisq_packing.form_of_links(16, SINGLE, n).links
    yield Case(n, SINGLE, replace(hisq_packing.WHOLE_TO_SHORT20, links=single), True)
    for links in (hisq_packing.FULL.links, *([hisq_packing.SHORT_NINE.links] if narrow else [])):
        yield Case(n, SINGLE, replace(hisq_packing.SHORT, links=links), False)
        yield Case(n, SINGLE, replace(hisq_packing.TO_SHORT20, links=links), True)


SHAPES = {
    1: ((1, 16, 512), (1, 32, 384), (1, 32, 512), (1, 32, 640), (1, 32, 768), (1, 32, 1024)),
    2: ((1, 64, 512), (1, 64, 768), (2, 32, 384), (2, 32, 512)),
    4: ((4, 32, 512), (2, 64, 512), (1, 128, 512), (4, 32, 384)),
    8: ((4, 64, 512), (2, 64, 640), (2, 128, 512), (4, 64, 384)),
    16: ((4, 128, 512), (4, 128, 640), (4, 64, 512), (2, 128, 768)),
    32: ((4, 256, 512), (4, 128, 640)),
}
"""Right-hand sides and threads of a block, and threads resident, to try beside those in use."""


def shapes(lattice: Lattice, case: Case) -> list[DslashShape]:
    """The shape in use, and others for the newer forms."""
    used = cuda.dslash_shape(lattice, case.dtype, case.n, case.form)
    if case.dots or case.form in (hisq_packing.FULL, hisq_packing.THIRTEEN):
        return [used]
    others = [cuda.shaped(lattice, case.dtype, case.n, *shape) for shape in SHAPES.get(case.n, ())]
    return list(dict.fromkeys([used, *others]))


def launch(lattice: Lattice, case: Case, shape: DslashShape) -> Launch:
    """A product in a shape."""
    return cuda.dslash_in_shape(lattice, 16, case.dtype, case.n, shape, case.dots, case.form)


def fields_of_links(lattice: Lattice) -> tuple[Any, Any]:
    """Fat links of any kind, and long ones that are a real number times U(3) matrices; complex128."""
    rng = cupy.random.default_rng(20)
    shape = (4, 2, lattice.half_volume, 3, 3)
    fat, long = (rng.standard_normal(shape) + 1j * rng.standard_normal(shape) for _ in range(2))
    return fat, -0.043 * to_u3(long, out=long).matrices


def packed_links(lattice: Lattice, links: tuple[Any, Any], case: Case) -> PackedLinks:
    """Links in the form of a case."""
    packed: Any = hisq_dslash.pack_fields(*links, lattice, EVEN, case.dtype, block=64)
    packed = hisq_packing.in_form(packed, case.form)
    if packed.form.links != case.form.links:
        raise RuntimeError(f"these links cannot be packed as {case.form.links}")
    return packed


def operands(lattice: Lattice, case: Case) -> tuple[Any, Any, Any]:
    """x, out and the diagonal of a case, random."""
    rng = cupy.random.default_rng(case.n)
    shape = (lattice.half_volume, 3, case.n)
    x, y = (
        (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(case.dtype) for _ in range(2)
    )
    if case.form.out == "Whole":
        return x, cupy.empty_like(x), y
    out = empty(len(x), case.n, 20 if case.form.out.endswith("20>") else 16, cupy)
    return (x, out, y) if case.form.x == "Whole" else (to_short(x, 16), out, to_short(y, 16))


def exact_sum(lattice: Lattice, links: tuple[Any, Any], x: Any, sites: Any) -> Any:
    """The product of x, complex128, at some even sites, ``[site, 3, N]``."""
    total = cupy.zeros((len(sites), *x.shape[1:]), complex)
    for d, (mu, hops) in enumerate(displacements(16)):
        field, start = links[d % 4 // 2], cupy.asarray(lattice.neighbour(EVEN, mu, hops)[sites])
        u = field[mu, EVEN][cupy.asarray(sites)] if hops > 0 else -field[mu, ODD][start].conj().swapaxes(1, 2)
        total += u @ x[start]
    return total


def products(
    device: Device, lattice: Lattice, launches: dict[tuple[Case, DslashShape], Launch], copy: float
) -> None:
    """Print picoseconds and errors of each product, in the shape in use and the best of all."""
    links, packed = fields_of_links(lattice), None
    sites = np.random.default_rng(3).integers(0, lattice.half_volume, 500)
    columns = ("N", "precision", "links", "x", "out", "bytes", "in use", "best", "of copy", "shape")
    table = PrintedTable(*columns, "error", "of dots")
    for case in dict.fromkeys(case for case, _ in launches):
        packed = packed_links(lattice, links, case)
        x, out, diagonal = operands(lattice, case)
        times = {}
        for shape in [shape for other, shape in launches if other == case]:
            kernel = launches[case, shape]
            sums = cupy.empty((kernel.grid[0], case.n)) if case.dots else None
            terms = (diagonal, 0.3, -1.1, sums) if case.dots else (None, 0.0, -1.1, None)
            work = partial(cuda.start, kernel, packed, x, out, *terms)
            times[shape] = 1e12 * device.seconds(work) / lattice.half_volume / case.n
        used, best = next(iter(times.values())), min(times, key=lambda shape: times[shape])
        form = (case.dtype, case.form.links, case.form.x, case.form.out)
        of_copy = case.nbytes / times[best] * 1e3 / copy
        chosen = (
            best.rhs_per_thread,
            best.sites_per_block,
            best.y_chunk,
            best.z_chunk,
            best.resident_threads,
        )
        at = cupy.asarray(sites)
        expected = -1.1 * exact_sum(lattice, links, whole(x).astype(complex), sites)
        if case.dots:
            expected += 0.3 * whole(diagonal)[at]
        error = float(cupy.linalg.norm(whole(out)[at] - expected) / cupy.linalg.norm(expected))
        of_dots = None
        if sums is not None:
            terms = whole(diagonal).conj() * whole(out).astype(complex)
            of_dots = float((abs(sums.sum(0) - terms.real.sum((0, 1))) / abs(terms).sum((0, 1))).max())
        table.add(
            case.n, *form, f"{case.nbytes:.0f}", used, times[best], f"{of_copy:.2f}", chosen, error, of_dots
        )


def update_launches(lattice: Lattice, widths: list[int]) -> list[Launch]:
    """Kernels of `updates`."""
    sites = lattice.half_volume
    return [
        kernel
        for n in widths
        for kernel in (
            cuda_updates.cg_advance_launch(n, SINGLE, 3 * sites),
            columns.reduction("cg_residual", n, SINGLE, 3 * sites),
            *(cuda_updates.short_advance_launch(n, sites, short) for short in (True, False)),
            cuda_updates.short_residual_launch(n, sites),
        )
    ]


def updates(device: Device, lattice: Lattice, widths: list[int], copy: float) -> None:
    """Print picoseconds of the updates of batched CG."""
    table = PrintedTable("N", "fields", "advance", "of copy", "residual", "of copy")
    for n in widths:
        shape = (lattice.half_volume, 3, n)
        whole_field, p = cupy.ones(shape, np.complex64), cupy.ones(shape, np.complex64)
        short, y = to_short(p, 20), cupy.ones(shape, np.complex64)
        for name, fields, moved in (
            ("complex64", (p, whole_field, whole_field.copy()), (120, 72)),
            ("short", (to_short(p, 16), short, ShortField(short.words.copy(), 20)), (96, 48)),
            ("short, p complex64", (p, short, ShortField(short.words.copy(), 20)), (112, 48)),
        ):
            row: list[object] = []
            c = CGCoefficients.zeros(y)
            c.r2[...] = c.gamma[...] = c.beta[...] = 1
            c.alpha[...], c.pap[...] = 1e-20, 1e30  # so that fields stay what they are, about
            direction, residual, product = fields
            for work, nbytes in zip(
                (
                    partial(cg_update.cg_advance, y, direction, residual, c),
                    partial(cg_update.cg_residual, residual, product, c),
                ),
                moved,
                strict=True,
            ):
                ps = 1e12 * device.seconds(work) / lattice.half_volume / n
                row += [ps, f"{nbytes / ps * 1e3 / copy:.2f}"]
            table.add(n, name, *row)


if __name__ == "__main__":
    main()
