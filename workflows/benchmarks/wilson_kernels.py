"""Check and time the CUDA Wilson kernels: `python -m workflows.benchmarks.wilson_kernels [--tune]`.

Prints Markdown tables: picoseconds per (site of the output parity, right-hand side) and, in brackets, the
fraction of the copy bandwidth of the same run that the bytes of perfect reuse make of it. Batches are short,
with pauses, and all variants of a row take turns: under load the card lowers its clocks. Errors are those of
one dslash against double precision on 300 random sites.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from statistics import median
from time import sleep
from typing import Any

import cupy
import numpy as np

from stages.lqcd.kernels import half_field
from stages.lqcd.kernels.cuda import clover, projection, wilson_dslash
from stages.lqcd.kernels.cuda.compile import compile_all
from stages.lqcd.kernels.cuda.launch import wilson as shapes
from stages.lqcd.kernels.gamma import GAMMA
from stages.lqcd.lattice.geometry import Lattice
from workflows.benchmarks.cuda_kernels import batch_seconds, random

SINGLE, DOUBLE = np.dtype(np.complex64), np.dtype(np.complex128)
FORMS = (shapes.FULL, shapes.TWELVE, shapes.EIGHT)
Works = Mapping[Any, Callable[[], object]]


def seconds(works: Works, rounds: int = 5, calls: int = 3) -> dict[Any, float]:
    """Median device time of one call of each work."""
    times: dict[Any, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            sleep(0.005)
            times[name].append(batch_seconds(work, calls))
    return {name: median(values) for name, values in times.items()}


def copy_bandwidth() -> float:
    """Bytes per second, read and written, of a device-to-device copy of 4 GB."""
    size = 1 << 32
    source, target = cupy.zeros(size, np.uint8), cupy.empty(size, np.uint8)
    copy = partial(cupy.cuda.runtime.memcpyAsync, target.data.ptr, source.data.ptr, size, 3, 0)
    return 2 * size / seconds({"copy": copy})["copy"]


class Problem:
    """Operands of one precision on a lattice; links ``[site, 8, 3, 3]`` are random ones of SU(3)."""

    def __init__(self, lattice: Lattice, dtype: np.dtype) -> None:
        self.lattice, self.dtype = lattice, dtype
        links = random((lattice.half_volume, 8, 3, 3), DOUBLE)
        projection.special_unitary(links.reshape(-1, 3, 3), links.reshape(-1, 3, 3))
        self.links = links
        self.packed = wilson_dslash.pack(links.astype(dtype), lattice, 0)
        blocks = random((lattice.half_volume, 2, 6, 6), dtype)
        self.clover = clover.pack(blocks + blocks.conj().swapaxes(2, 3))

    def fields(self, n: int, kind: shapes.Fields) -> tuple[Any, Any, cupy.ndarray]:
        """x, out and a diagonal."""
        x, diagonal = (random((self.lattice.half_volume, 12, n), self.dtype) for _ in range(2))
        out = cupy.full_like(x, np.nan)
        if kind.x == "Half":
            x = half_field.to_half(x)
        if kind.out == "Half":
            out = half_field.empty(cupy, self.lattice.half_volume, n, 12)
        return x, out, diagonal

    def launch(
        self, n: int, place: int, form: shapes.LinksForm, kind: shapes.Fields, shape: Any = None
    ) -> Any:
        """The kernel in its own best shape, or in another."""
        if shape is None:
            return shapes.wilson_dslash(self.lattice, self.dtype, n, 1, place, form, kind)
        return shapes.wilson_in_shape(self.lattice, self.dtype, n, shape, 1, place, form, kind)

    def bytes(self, n: int, place: int, form: shapes.LinksForm, kind: shapes.Fields) -> float:
        """Bytes per site and right-hand side at perfect reuse."""
        real = self.dtype.itemsize / 2
        matrices = (16 * form.elements + (72 if place else 0)) * real / n
        fields = [52 if how == "Half" else 24 * real for how in (kind.x, kind.out)]
        return matrices + sum(fields) + (24 * real if place == shapes.DIAGONAL_CLOVER else 0)

    def error(self, x: Any, out: Any) -> float:
        """Relative error of D x on random sites."""
        if isinstance(x, half_field.HalfField):
            x = random((self.lattice.half_volume, 12, x.shape[2]), self.dtype)  # what it was made of
        if isinstance(out, half_field.HalfField):
            out = half_field.from_half(out)
        sites = np.random.default_rng(31).integers(self.lattice.half_volume, size=300)
        expected = np.array(0)
        for d in range(8):
            mu, step = d // 2, 1 - 2 * (d % 2)
            neighbours = cupy.asarray(self.lattice.neighbour(0, mu, step)[sites])
            v = cupy.asnumpy(x[neighbours]).astype(complex).reshape(len(sites), 4, 3, -1)
            u = step * cupy.asnumpy(self.links[sites, d])
            expected = expected + np.einsum("rs,xab,xsbn->xran", np.eye(4) - step * GAMMA[mu], u, v)
        values = cupy.asnumpy(out[sites]).reshape(expected.shape)
        return float(np.linalg.norm(values - expected) / np.linalg.norm(expected))


def rows(problem: Problem, widths: list[int], kinds: list[shapes.Fields], bandwidth: float) -> Iterator[str]:
    """Rows of all forms of links: time and fraction without clover matrices and with them in both places."""
    for kind in kinds:
        for n in widths:
            x, out, diagonal = problem.fields(n, kind)
            for form in FORMS:
                works = dict(variants(problem, n, kind, form, x, out, diagonal))
                compile_all([work.args[0] for work in works.values()])
                times = seconds(works)
                works[shapes.NO_CLOVER]()
                unit = 1e12 / (problem.lattice.half_volume * n)
                cells = []
                for place, time in times.items():
                    fraction = problem.bytes(n, place, form, kind) / (unit * time * 1e-12) / bandwidth
                    cells.append(f"{unit * time:.1f} ({fraction:.2f})")
                cells += ["-"] * (3 - len(cells)) + [f"{problem.error(x, out):.1e}"]
                yield f"| {problem.dtype} {kind} | {n} | {2 * form.elements} | {' | '.join(cells)} |"


def variants(
    problem: Problem,
    n: int,
    kind: shapes.Fields,
    form: shapes.LinksForm,
    x: Any,
    out: Any,
    diagonal: cupy.ndarray,
) -> Iterator[tuple[int, partial]]:
    """The dslash without clover matrices, C D, and C' diagonal + D where out takes a diagonal."""
    yield (
        shapes.NO_CLOVER,
        partial(wilson_dslash.start, problem.launch(n, 0, form, kind), problem.packed, form, x, out),
    )
    hop = problem.launch(n, shapes.HOP_CLOVER, form, kind)
    terms = (None, 0.0, 1.0, problem.clover)
    yield shapes.HOP_CLOVER, partial(wilson_dslash.start, hop, problem.packed, form, x, out, *terms)
    if kind.out == "Whole":
        both = problem.launch(n, shapes.DIAGONAL_CLOVER, form, kind)
        terms = (diagonal, 0.3, -0.7, problem.clover)
        yield shapes.DIAGONAL_CLOVER, partial(wilson_dslash.start, both, problem.packed, form, x, out, *terms)


def tuning(problem: Problem, widths: list[int], kinds: list[shapes.Fields]) -> Iterator[str]:
    """Candidates of the forms in use, fastest first."""
    unit = 1e12 / problem.lattice.half_volume
    for kind in kinds:
        for n in widths:
            x, out, _ = problem.fields(n, kind)
            for form, place in ((shapes.FULL, 0), (shapes.TWELVE, 0), (shapes.FULL, shapes.HOP_CLOVER)):
                matrices = problem.clover if place else None
                options = shapes.candidates(problem.lattice, problem.dtype, n, place, form, kind)
                launches = {shape: problem.launch(n, place, form, kind, shape) for shape in options}
                fitting = set(compile_all(list(launches.values())))
                works = {
                    shape: partial(
                        wilson_dslash.start, k, problem.packed, form, x, out, None, 0.0, 1.0, matrices
                    )
                    for shape, k in launches.items()
                    if k in fitting
                }
                times = seconds(works, 3)
                yield f"{problem.dtype} {kind} N={n} {form} clover={place}, first {options[0]}"
                for shape, time in sorted(times.items(), key=lambda item: item[1])[:4]:
                    yield f"  {unit * time / n:7.1f}  {shape}"


def clover_rows(problem: Problem, widths: list[int], bandwidth: float) -> Iterator[str]:
    """Products with clover matrices, in place, and one direction of the dslash."""
    for n in widths:
        x, out, _ = problem.fields(n, shapes.WHOLE)
        works = {
            "clover": partial(clover.multiply, problem.clover, x, x),
            "hop": partial(wilson_dslash.wilson_hop, problem.packed, 6, x, out),
        }
        unit = 1e12 / (problem.lattice.half_volume * n)
        times = {name: unit * time for name, time in seconds(works).items()}
        moved = problem.dtype.itemsize * (24 + 36 / n)
        fraction = moved / (times["clover"] * 1e-12) / bandwidth
        yield f"| {problem.dtype} | {n} | {times['clover']:.1f} ({fraction:.2f}) | {times['hop']:.1f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--lattice", nargs=4, type=int, default=(32, 32, 32, 48), metavar=("X", "Y", "Z", "T")
    )
    parser.add_argument("--rhs", nargs="+", type=int, default=[1, 8, 16, 32, 64])
    parser.add_argument(
        "--tune", action="store_true", help="time the candidates of the launch shapes as well"
    )
    arguments = parser.parse_args()
    lattice, bandwidth = Lattice(tuple(arguments.lattice)), copy_bandwidth()
    print(f"{lattice}, copy bandwidth {bandwidth / 1e12:.2f} TB/s")
    for dtype in (SINGLE, DOUBLE):
        problem = Problem(lattice, dtype)
        kinds = [shapes.WHOLE, *([shapes.HALF, shapes.HALF_TO_SINGLE] if dtype == SINGLE else [])]
        widths = arguments.rhs if dtype == SINGLE else [n for n in arguments.rhs if n <= 32]
        if arguments.tune:
            print("\n".join(tuning(problem, widths, kinds)), flush=True)
        print("| fields | N | reals | D | C D | C' diagonal + D | error |\n" + "|---" * 7 + "|")
        for row in rows(problem, widths, kinds, bandwidth):
            print(row, flush=True)
        print("| fields | N | C x | one direction |\n|---|---|---|---|")
        print("\n".join(clover_rows(problem, widths, bandwidth)), flush=True)


if __name__ == "__main__":
    main()
