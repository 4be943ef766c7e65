"""Time and check the CUDA Wilson kernels, as Markdown tables.

    python tests/benchmarks/wilson_kernels.py [--lattice 32 32 32 48] [--rhs 1 8 16 32 64]

Picoseconds per (site of the output parity, right-hand side) and, in brackets, the fraction of the copy
bandwidth of the same run that the bytes of perfect reuse make of it. "reals": of a link, or links in
their fields. Errors are those of
one dslash against double precision on 300 random sites.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import cupy
import numpy as np

from script import LARGE, PrintedTable, arguments_of
from stages.lqcd.kernels import clover, short_numbers, smearing, wilson_dslash
from stages.lqcd.kernels.cuda import link_fields
from stages.lqcd.kernels.cuda import wilson_dslash as cuda
from stages.lqcd.kernels.dispatch import Array, as_numpy
from stages.lqcd.kernels.gamma import COMPONENTS, GAMMA
from stages.lqcd.lattice.geometry import Lattice
from workflows.benchmarks.machine import Device, Work, random_field
from workflows.benchmarks.speed import DTYPES
from workflows.benchmarks.wilson import CLOVER_NUMBERS, clover_cost

FORMS = (cuda.FULL, cuda.TWELVE, cuda.IN_FIELDS)
PLACES = (cuda.NO_CLOVER, cuda.HOP_CLOVER, cuda.DIAGONAL_CLOVER)
COLUMNS = ("fields", "N", "reals", "D", "C D", "C' diagonal + D", "error")


class WilsonProblem:
    """Operands of one precision on a lattice; links are random ones of SU(3)."""

    def __init__(self, device: Device, lattice: Lattice, dtype: np.dtype) -> None:
        self.device, self.lattice, self.dtype = device, lattice, dtype
        links = random_field(device, (4, 2, lattice.half_volume, 3, 3), np.complex128)
        smearing.special_unitary(links.reshape(-1, 3, 3), links.reshape(-1, 3, 3))
        self.links = cupy.empty((lattice.half_volume, 8, 3, 3), complex)
        link_fields.in_tiles(links, None, lattice, 0, self.links, (1, 1, 1, 1))
        weights = (1.0, 1.0, 1.0, 1.0)
        self.packed = {form: form.pack(links, weights, lattice, 0, dtype) for form in FORMS}
        blocks = random_field(device, (lattice.half_volume, 2, 6, 6), dtype)
        self.clover = clover.pack(blocks + blocks.conj().swapaxes(2, 3))

    def fields(self, n: int, kind: cuda.Fields) -> tuple[Any, Any, Array]:
        """Fields x, out and a diagonal."""
        sites = self.lattice.half_volume
        x: Any
        x, diagonal = (random_field(self.device, (sites, COMPONENTS, n), self.dtype) for _ in range(2))
        out = cupy.full_like(x, np.nan)
        if kind.x == "Half":
            x = short_numbers.to_half(x)
        if kind.out == "Half":
            out = short_numbers.HalfField.empty(sites, n, cupy)
        return x, out, diagonal

    def works(self, n: int, kind: cuda.Fields, form: cuda.SU3Links18) -> Iterator[tuple[Work, float]]:
        """D, C D and, where out takes a diagonal, C' diagonal + D; bytes of perfect reuse of each."""
        x, out, diagonal = self.fields(n, kind)
        terms: Any = ((), (None, 0.0, 1.0, self.clover), (diagonal, 0.3, -0.7, self.clover))
        real = self.dtype.itemsize / 2
        fields = sum(2 * COMPONENTS * real if part == "Whole" else 52 for part in (kind.x, kind.out))
        for place, term in zip(PLACES, terms, strict=True):
            if place == cuda.DIAGONAL_CLOVER and kind.out == "Half":
                return
            launch = cuda.wilson_dslash_launch(self.lattice, self.dtype, n, 1, place, form, kind)
            stored = form.elements if form.in_tiles else 9 / 2
            matrices = (16 * stored + (2 * CLOVER_NUMBERS if place else 0)) * real / n
            read = 2 * COMPONENTS * real if place == cuda.DIAGONAL_CLOVER else 0
            yield partial(cuda.start, launch, self.packed[form], x, out, *term), matrices + fields + read

    def error(self, n: int, kind: cuda.Fields, form: cuda.SU3Links18) -> float:
        """Relative error of D x on random sites."""
        x, out, _ = self.fields(n, kind)
        launch = cuda.wilson_dslash_launch(self.lattice, self.dtype, n, 1, cuda.NO_CLOVER, form, kind)
        cuda.start(launch, self.packed[form], x, out)
        if kind.x == "Half":  # what it was made of: random fields are equal
            x = random_field(self.device, (self.lattice.half_volume, COMPONENTS, n), self.dtype)
        if kind.out == "Half":
            out = short_numbers.from_half(out)
        sites = np.random.default_rng(31).integers(self.lattice.half_volume, size=300)
        expected = np.array(0)
        for d in range(8):
            mu, step = d // 2, 1 - 2 * (d % 2)
            neighbours = cupy.asarray(self.lattice.neighbour(0, mu, step)[sites])
            v = as_numpy(x[neighbours]).astype(complex).reshape(len(sites), 4, 3, -1)
            u = step * as_numpy(self.links[sites, d])
            expected = expected + np.einsum("rs,xab,xsbn->xran", np.eye(4) - step * GAMMA[mu], u, v)
        actual = as_numpy(out[sites]).reshape(expected.shape)
        return float(np.linalg.norm(actual - expected) / np.linalg.norm(expected))


def main() -> None:
    """Print the tables for the device at hand."""
    arguments = arguments_of(__doc__, lattice=LARGE, options={"rhs": [1, 8, 16, 32, 64]})
    device, lattice = Device(), arguments.lattice
    copy = device.copy_bandwidth()
    print(f"{device.name}, {lattice}, copy {copy:.0f} GB/s")
    for precision, dtype in DTYPES.items():
        problem = WilsonProblem(device, lattice, dtype)
        widths = [n for n in arguments.rhs if n * dtype.itemsize <= 512]
        kinds = [cuda.WHOLE, *([cuda.HALF, cuda.HALF_TO_SINGLE] if precision == "single" else [])]
        table = PrintedTable(*COLUMNS)
        for kind, n, form in ((kind, n, form) for kind in kinds for n in widths for form in FORMS):
            if not form.in_tiles and dtype != np.complex128:
                continue
            cells = [timed(problem, work, n, moved, copy) for work, moved in problem.works(n, kind, form)]
            cells += ["-"] * (len(PLACES) - len(cells))
            name = 2 * form.elements if form.in_tiles else "fields"
            table.add(f"{precision} {kind}", n, name, *cells, problem.error(n, kind, form))
        table = PrintedTable("fields", "N", "C x", "one direction")
        for n in widths:
            x, out, _ = problem.fields(n, cuda.WHOLE)
            product, hop = (
                partial(clover.multiply, problem.clover, x, x),
                partial(wilson_dslash.wilson_hop, problem.packed[cuda.FULL], 6, x, out),
            )
            moved = clover_cost(n, dtype.itemsize).perfect_bytes
            unit = 1e12 / (lattice.half_volume * n)
            table.add(precision, n, timed(problem, product, n, moved, copy), unit * device.seconds(hop))


def timed(problem: WilsonProblem, work: Work, n: int, moved: float, copy: float) -> str:
    """Picoseconds, and the fraction of the copy bandwidth in GB/s that `moved` bytes make of them."""
    picoseconds = 1e12 / (problem.lattice.half_volume * n) * problem.device.seconds(work)
    return f"{picoseconds:.1f} ({1e3 * moved / picoseconds / copy:.2f})"


if __name__ == "__main__":
    main()
