"""Check and time the CUDA kernels on the device at hand.

    python -m workflows.benchmarks.cuda_kernels [--tune]

Prints Markdown tables: the dslash in picoseconds per (site of the output parity, right-hand side) beside the
prototypes' figures, and every other kernel as a fraction of the device's copy bandwidth of the same run.
Bytes are counted once per array (perfect reuse). The dslash is checked against NumPy on random sites.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from math import ceil
from pathlib import Path
from statistics import median
from time import perf_counter

import cupy
import numpy as np

from stages.lqcd.kernels.cuda import block_blas, cg_update, hisq_dslash, one_link_current, staple
from stages.lqcd.kernels.cuda.launch import dslash as dslash_shapes
from stages.lqcd.lattice.geometry import Lattice
from workflows.benchmarks.block_blas import slow_coefficients

SINGLE, DOUBLE = np.dtype(np.complex64), np.dtype(np.complex128)
WIDTHS = (1, 8, 16, 32, 64)
PROTOTYPE = {
    SINGLE: dict(zip(WIDTHS, (308.7, 59.6, 42.2, 37.2, 36.4), strict=True)),
    DOUBLE: dict(zip(WIDTHS, (729, 113.5, 90.9, 86.8, 88.6), strict=True)),
}
"""ps per (site, rhs) of the prototype kernels at 32^3 x 48 on an H200."""


def seconds(work: Callable[[], object], repeats: int = 7) -> float:
    """Median device time of one call, from batches that hide the host but do not heat the device."""
    calls = max(2, ceil(2e-3 / batch_seconds(work, 2)))
    return median(batch_seconds(work, calls) for _ in range(repeats))


def batch_seconds(work: Callable[[], object], calls: int) -> float:
    """Time per call between device events around `calls` calls, after one warm-up call."""
    start, stop = cupy.cuda.Event(), cupy.cuda.Event()
    work()
    start.record()
    for _ in range(calls):
        work()
    stop.record()
    stop.synchronize()
    return cupy.cuda.get_elapsed_time(start, stop) / 1e3 / calls


def host_microseconds(work: Callable[[], object], calls: int = 300) -> float:
    """Time that the host needs to start one call."""
    work()
    cupy.cuda.Device().synchronize()
    start = perf_counter()
    for _ in range(calls):
        work()
    elapsed = perf_counter() - start
    cupy.cuda.Device().synchronize()
    return 1e6 * elapsed / calls


def random(shape: tuple[int, ...], dtype: np.dtype) -> cupy.ndarray:
    """Complex numbers with parts uniform in [-1, 1)."""
    real = np.float32 if dtype == SINGLE else np.float64
    parts = cupy.random.default_rng(2718).random((*shape[:-1], 2 * shape[-1]), dtype=real)
    parts *= 2
    parts -= 1
    return parts.view(dtype)


def copy_bandwidth() -> float:
    """Bytes per second, read and written, of a device-to-device copy of 4 GB."""
    size = 1 << 32
    source, target = cupy.zeros(size, np.uint8), cupy.empty(size, np.uint8)
    return (
        2
        * size
        / seconds(lambda: cupy.cuda.runtime.memcpyAsync(target.data.ptr, source.data.ptr, size, 3, 0))
    )


# --- dslash -----------------------------------------------------------------------------------------------


def dslash_error(lattice: Lattice, links: cupy.ndarray, x: cupy.ndarray, out: cupy.ndarray) -> float:
    """Relative error of parity 0 of the dslash on 500 random sites, against NumPy in double."""
    sites = np.random.default_rng(31).integers(lattice.half_volume, size=500)
    hops = [(mu, step) for mu in range(4) for step in (1, -1, 3, -3)]
    neighbours = np.stack([lattice.neighbour(0, mu, step)[sites] for mu, step in hops], axis=1)
    u, v = (
        cupy.asnumpy(array).astype(np.complex128) for array in (links[sites], x[cupy.asarray(neighbours)])
    )
    expected = np.einsum("sdij,sdjn->sin", u, v)
    return float(np.linalg.norm(cupy.asnumpy(out[sites]) - expected) / np.linalg.norm(expected))


def dslash_rows(lattice: Lattice, bandwidth: float, tune: bool) -> Iterator[str]:
    """Table rows: precision, N, ps, ratio to the prototype, fraction of copy bandwidth, relative error."""
    for dtype in (SINGLE, DOUBLE):
        links = random((lattice.half_volume, 16, 3, 3), dtype)
        packed = hisq_dslash.pack(links, lattice, 0)
        pack_ms = 1e3 * seconds(lambda: hisq_dslash.pack(links, lattice, 0), 3)  # noqa: B023
        print(f"pack {dtype}: {pack_ms:.2f} ms")
        for n in WIDTHS:
            x = random((lattice.half_volume, 3, n), dtype)
            out = cupy.full_like(x, np.nan)
            unit = 1e12 / (lattice.half_volume * n)
            ps = unit * seconds(lambda: hisq_dslash.hisq_dslash(packed, x, out))  # noqa: B023
            error = dslash_error(lattice, links, x, out)
            fused = unit * seconds(lambda: hisq_dslash.hisq_dslash(packed, x, out, diagonal=out, a=0.1, b=-1))  # noqa: B023
            model = (144 * dtype.itemsize / n + 6 * dtype.itemsize) / (ps * 1e-12) / bandwidth
            ratio = ps / PROTOTYPE[dtype][n]
            yield f"| {dtype} | {n} | {ps:.1f} | {ratio:.2f} | {model:.2f} | {fused:.1f} | {error:.1e} |"
            if tune:
                report_candidates(lattice, packed, x, unit)


def report_candidates(
    lattice: Lattice, packed: hisq_dslash.PackedLinks, x: cupy.ndarray, unit: float
) -> None:
    """Print ps per (site, rhs) of other shapes, fastest first."""
    n, dtype = x.shape[2], packed.dtype
    form, out, timed = packed.best_form(n), cupy.empty_like(x), {}
    for shape in dslash_shapes.candidates(lattice, packed.directions, dtype, n, form):
        kernel = dslash_shapes.dslash_in_shape(lattice, packed.directions, dtype, n, shape, form=form)
        links = packed.in_form(form)
        timed[shape] = unit * seconds(lambda: hisq_dslash.start(kernel, links, 0, x, out), 3)  # noqa: B023
    print(f"{dtype} N={n}, {form}, in use: {dslash_shapes.dslash_shape(lattice, dtype, n, form)}")
    for shape, ps in sorted(timed.items(), key=lambda item: item[1])[:12]:
        print(f"  {ps:7.1f}  {shape}")


# --- everything else --------------------------------------------------------------------------------------


def block_rows(lattice: Lattice, bandwidth: float) -> Iterator[str]:
    """Table rows: kernel, precision, then the fraction of copy bandwidth for each width."""
    for dtype in (SINGLE, DOUBLE):
        fractions: dict[str, list[str]] = {}
        for n in WIDTHS:
            for name, (work, arrays) in block_kernels(lattice, dtype, n).items():
                moved = arrays * lattice.half_volume * 3 * n * dtype.itemsize
                fractions.setdefault(name, []).append(f"{moved / seconds(work) / bandwidth:.2f}")
        for name, columns in fractions.items():
            yield f"| {name} | {dtype} | {' | '.join(columns)} |"


def block_kernels(lattice: Lattice, dtype: np.dtype, n: int) -> dict[str, tuple[Callable[[], object], float]]:
    """Each kernel of blocks with the number of block-sized arrays that it reads and writes."""
    x, y, p, ap = (random((lattice.half_volume, 3, n), dtype) for _ in range(4))
    a = random((n, n), DOUBLE) / n
    coefficients = slow_coefficients(x)
    links = random((4, lattice.half_volume, 3, 3), dtype)
    return {
        "gram": (lambda: block_blas.gram(x, y), 2),
        "update": (lambda: block_blas.update(y, x, a), 3),
        "rotate": (lambda: block_blas.rotate(x, a, y), 2),
        "rotate_add": (lambda: block_blas.rotate_add(x, p, a, p), 3),
        "dots": (lambda: block_blas.dots(x, y), 2),
        "norms2": (lambda: block_blas.norms2(x), 1),
        "cg_advance": (lambda: cg_update.cg_advance(x, p, y, coefficients), 5),
        "cg_residual": (lambda: cg_update.cg_residual(y, ap, coefficients), 3),
        "one_link_current": (lambda: one_link_current.one_link_current(links, x, y, lattice, 0), 2 + 12 / n),
    }


def host_row() -> str:
    """Time that the host spends on one call, on a lattice so small that the device keeps up."""
    lattice, n = Lattice((4, 4, 4, 4)), 8
    packed = hisq_dslash.pack(random((lattice.half_volume, 16, 3, 3), SINGLE), lattice, 0)
    x, out = (random((lattice.half_volume, 3, n), SINGLE) for _ in range(2))
    works = {"dslash": lambda: hisq_dslash.hisq_dslash(packed, x, out)}
    works |= {name: work for name, (work, _) in block_kernels(lattice, SINGLE, n).items()}
    return "host us per call: " + ", ".join(f"{name} {host_microseconds(w):.0f}" for name, w in works.items())


def staple_row(lattice: Lattice, bandwidth: float) -> str:
    """One application of add_staple in double: per link, three matrices read and one written."""
    out, field, links = (random((2, lattice.half_volume, 3, 3), DOUBLE) for _ in range(3))
    time = seconds(lambda: staple.add_staple(out, field, links, lattice, 0, 3, 0.1))
    fraction = 4 * out.nbytes / time / bandwidth
    return f"add_staple complex128: {1e3 * time:.2f} ms, {fraction:.2f} of copy bandwidth"


def report(lattice: Lattice, tune: bool) -> str:
    """The whole report in Markdown."""
    bandwidth = copy_bandwidth()
    name = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    dslash_head = "| precision | N | ps | / prototype | of copy | ps fused | error |"
    block_head = f"| kernel | precision | {' | '.join(f'N={n}' for n in WIDTHS)} |"
    return "\n".join(
        [
            f"{name}, CuPy {cupy.__version__}, lattice {lattice}, copy bandwidth {bandwidth / 1e12:.2f} TB/s",
            *("", dslash_head, "|---" * 7 + "|", *dslash_rows(lattice, bandwidth, tune)),
            *("", block_head, "|---" * (2 + len(WIDTHS)) + "|", *block_rows(lattice, bandwidth)),
            *("", staple_row(lattice, bandwidth), host_row()),
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--lattice", nargs=4, type=int, default=(32, 32, 32, 48), metavar=("X", "Y", "Z", "T")
    )
    parser.add_argument("--tune", action="store_true", help="time other shapes of the dslash as well")
    parser.add_argument("--output", type=Path, help="also write the report to this file")
    arguments = parser.parse_args()
    text = report(Lattice(tuple(arguments.lattice)), arguments.tune)
    print(text)
    if arguments.output:
        arguments.output.write_text(text + "\n")


if __name__ == "__main__":
    main()
