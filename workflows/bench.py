"""The benchmark behind `quarkline bench`: a kernel's speed beside this machine's own copy bandwidth."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from importlib import import_module
from statistics import median
from types import ModuleType
from typing import Any

import llvmlite.binding as llvm
import numba
import numpy as np
from numpy.typing import NDArray

from stages.kernels.directions import HISQ_DIRECTIONS, neighbour_table
from stages.lattice.errors import InputError
from stages.lattice.geometry import EVEN, Lattice

FLOPS_PER_SITE = 16 * 66 + 15 * 6
"""Of one right-hand side: 16 products of a 3 x 3 matrix with a vector, and their sum."""

COPY_BYTES = 1 << 29
NUMPY_WORK = 1 << 20
"""Sites times right-hand sides on which the NumPy formulations are timed: they take microseconds each."""

MEASURING_SECONDS = 1.0


@dataclass(frozen=True)
class Machine:
    """How a backend allocates, times and copies."""

    kernels: ModuleType
    name: str
    array: Callable[[NDArray], Any]
    seconds: Callable[[Callable[[], object]], float]
    copy_bandwidth: Callable[[], float]


@dataclass(frozen=True)
class DslashSpeed:
    """Figures of one dslash; time per (site of the output parity, right-hand side), bandwidths in GB/s."""

    lattice: tuple[int, int, int, int]
    rhs: int
    precision: str
    machine: str
    nanoseconds: float
    gflops: float
    perfect_reuse_bandwidth: float
    naive_bandwidth: float
    copy_bandwidth: float
    fraction_of_copy: float
    numpy_nanoseconds: float | None


def hisq_dslash_bench(
    extents: tuple[int, int, int, int], rhs: int, precision: str, backend: str
) -> dict[str, Any]:
    """Time the HISQ dslash of one parity; the fields of `DslashSpeed` as a dictionary for JSON.

    precision 'single' or 'double', backend 'cpu' or 'cuda'. Two traffic models bound the bytes moved per
    site and right-hand side: perfect reuse, where each neighbour is loaded once (1152 / N + 48 in single
    precision), and naive, where it is loaded by every site that it neighbours (1152 / N + 408). On the CPU
    the best of three NumPy formulations is timed beside it. Raises InputError.
    """
    dtype = _dtype(precision)
    lattice, machine = Lattice(extents), _machine(backend)
    links = _random((lattice.half_volume, HISQ_DIRECTIONS, 3, 3), dtype)
    x = _random((lattice.half_volume, 3, rhs), dtype)
    site_rhs = lattice.half_volume * rhs
    dslash = machine.kernels.hisq_dslash
    packed, field = dslash.pack(machine.array(links), lattice, EVEN), machine.array(x)
    out = field.copy()
    nanoseconds = machine.seconds(lambda: dslash.hisq_dslash(packed, field, out)) / site_rhs * 1e9
    copy = machine.copy_bandwidth()
    perfect, naive = (traffic / nanoseconds for traffic in traffic_models(rhs, dtype))
    speed = DslashSpeed(
        lattice=lattice.extents,
        rhs=rhs,
        precision=precision,
        machine=machine.name,
        nanoseconds=nanoseconds,
        gflops=FLOPS_PER_SITE / nanoseconds,
        perfect_reuse_bandwidth=perfect,
        naive_bandwidth=naive,
        copy_bandwidth=copy,
        fraction_of_copy=perfect / copy,
        numpy_nanoseconds=numpy_nanoseconds(links, x, lattice) if backend == "cpu" else None,
    )
    return asdict(speed)


def table(speed: dict[str, Any]) -> str:
    """The figures of `hisq_dslash_bench` as lines of text."""
    lattice = "x".join(map(str, speed["lattice"]))
    lines = [
        f"HISQ dslash, one parity of {lattice}, {speed['rhs']} rhs, {speed['precision']} precision",
        f"machine                {speed['machine']}",
        f"time                   {speed['nanoseconds']:.4g} ns per site and rhs",
        f"arithmetic             {speed['gflops']:.1f} GFLOP/s",
        f"traffic, perfect reuse {speed['perfect_reuse_bandwidth']:.1f} GB/s",
        f"traffic, naive         {speed['naive_bandwidth']:.1f} GB/s",
        f"copy bandwidth         {speed['copy_bandwidth']:.1f} GB/s",
        f"fraction of copy       {speed['fraction_of_copy']:.2f} with perfect reuse",
    ]
    if speed["numpy_nanoseconds"] is not None:
        ratio = speed["numpy_nanoseconds"] / speed["nanoseconds"]
        lines.append(f"best NumPy             {speed['numpy_nanoseconds']:.4g} ns, {ratio:.0f} times as long")
    return "\n".join(lines)


def traffic_models(rhs: int, dtype: np.dtype) -> tuple[float, float]:
    """Bytes per site and right-hand side: with perfect reuse of neighbours, and with none."""
    links, vector = HISQ_DIRECTIONS * 9 * dtype.itemsize / rhs, 3 * dtype.itemsize
    return links + 2 * vector, links + (HISQ_DIRECTIONS + 1) * vector


def numpy_nanoseconds(links: NDArray, x: NDArray, lattice: Lattice) -> float:
    """Time per site and right-hand side of the fastest of three ways to write the dslash in NumPy."""
    sites = min(lattice.half_volume, max(1, NUMPY_WORK // x.shape[2]))
    links, neighbours = links[:sites], neighbour_table(lattice, EVEN, HISQ_DIRECTIONS)[:sites]
    times = []
    for product in (np.matmul, _by_einsum, _by_broadcasting):
        times.append(_cpu_seconds(partial(_numpy_dslash, product, links, neighbours, x)))
    return min(times) / (sites * x.shape[2]) * 1e9


def _numpy_dslash(
    product: Callable[[NDArray, NDArray], NDArray], links: NDArray, neighbours: NDArray, x: NDArray
) -> NDArray:
    total = product(links[:, 0], x[neighbours[:, 0]])
    for d in range(1, HISQ_DIRECTIONS):
        total += product(links[:, d], x[neighbours[:, d]])
    return total


def _by_einsum(u: NDArray, v: NDArray) -> NDArray:
    return np.einsum("sij,sjn->sin", u, v)


def _by_broadcasting(u: NDArray, v: NDArray) -> NDArray:
    columns = [u[:, :, j, None] * v[:, None, j] for j in range(3)]
    return columns[0] + columns[1] + columns[2]


def _dtype(precision: str) -> np.dtype:
    if precision not in ("single", "double"):
        raise InputError(f"precision must be 'single' or 'double', got {precision!r}")
    return np.dtype(np.complex64 if precision == "single" else np.complex128)


def _random(shape: tuple[int, ...], dtype: np.dtype) -> NDArray:
    """Complex numbers with both parts uniform in [0, 1)."""
    real = dtype.type(0).real.dtype
    reals = np.random.default_rng(2718).random((*shape[:-1], 2 * shape[-1]), dtype=real)
    return reals.view(dtype)


def _machine(backend: str) -> Machine:
    if backend not in MACHINES:
        raise InputError(f"backend must be 'cpu' or 'cuda', got {backend!r}")
    return MACHINES[backend]()


def _host() -> Machine:
    name = f"{llvm.get_host_cpu_name()}, {numba.get_num_threads()} threads"
    kernels = import_module("stages.kernels.cpu")
    return Machine(kernels, name, np.asarray, _cpu_seconds, _cpu_copy_bandwidth)


def _device() -> Machine:
    try:
        import cupy
    except ImportError:
        raise InputError("backend 'cuda' needs CuPy: pip install 'quarkline[cuda13]'") from None
    if not cupy.is_available():
        raise InputError("backend 'cuda' needs a CUDA device and its driver, and CuPy finds none here")
    name = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)["name"].decode()
    kernels = import_module("stages.kernels.cuda")
    return Machine(kernels, name, cupy.asarray, _cuda_seconds, _cuda_copy_bandwidth)


MACHINES = {"cpu": _host, "cuda": _device}


def _cpu_seconds(work: Callable[[], object]) -> float:
    """Shortest time of one call, after one that warms up and compiles: other programs only lengthen it."""
    work()
    times: list[float] = []
    while sum(times) < MEASURING_SECONDS or len(times) < 3:
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def _cuda_seconds(work: Callable[[], object]) -> float:
    """Median time of one call by device events, after one that warms up and compiles."""
    import cupy

    work()
    times: list[float] = []
    for _ in range(20):
        start, stop = cupy.cuda.Event(), cupy.cuda.Event()
        start.record()
        work()
        stop.record()
        stop.synchronize()
        times.append(cupy.cuda.get_elapsed_time(start, stop) / 1e3)
    return median(times)


def _cpu_copy_bandwidth() -> float:
    """GB/s, read and written, of a copy by as many threads as the kernels use."""
    threads = numba.get_num_threads()
    source, target = np.ones(COPY_BYTES, np.uint8), np.ones(COPY_BYTES, np.uint8)
    sources, targets = np.array_split(source, threads), np.array_split(target, threads)
    with ThreadPoolExecutor(threads) as pool:
        seconds = _cpu_seconds(lambda: list(pool.map(np.copyto, targets, sources)))
    return 2 * COPY_BYTES / seconds / 1e9


def _cuda_copy_bandwidth() -> float:
    """GB/s, read and written, of a copy within the device's memory."""
    import cupy

    source, target = cupy.ones(COPY_BYTES, np.uint8), cupy.empty(COPY_BYTES, np.uint8)
    stream = cupy.cuda.get_current_stream()
    seconds = _cuda_seconds(lambda: target.data.copy_from_device_async(source.data, COPY_BYTES, stream))
    return 2 * COPY_BYTES / seconds / 1e9
