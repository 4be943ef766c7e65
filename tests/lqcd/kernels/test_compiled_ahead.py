"""Kernels of narrower blocks are compiled while a solve goes on that may come to them."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cupy", reason="compiling the CUDA sources needs cupy and nvidia-cuda-nvrtc")

from stages.lqcd.kernels.cuda import (
    block_blas,
    cg_update,
    columns,
    compile,
    hisq_dslash,
    lane_blas,
    wilson_dslash,
)
from stages.lqcd.kernels.cuda.launch import Launch
from stages.lqcd.lattice.geometry import Lattice
from support.nvrtc_compiler import compile_only

pytestmark = pytest.mark.nvrtc

SINGLE, DOUBLE = np.dtype(np.complex64), np.dtype(np.complex128)
LATTICE = Lattice((6, 4, 10, 8))
NARROWER = (1, 2, 4, 8, 12, 16)


def hisq(n: int) -> list[Launch]:
    forms = [
        (SINGLE, hisq_dslash.FULL),
        (SINGLE, hisq_dslash.NINE),
        (SINGLE, hisq_dslash.SHORT_NINE),
        (SINGLE, hisq_dslash.ShortLinks9(20)),
        (DOUBLE, hisq_dslash.FULL),
        (DOUBLE, hisq_dslash.IN_FIELDS),
    ]
    return [
        hisq_dslash.dslash_launch(LATTICE, 16, dtype, n, dots, form=form)
        for dtype, form in forms
        for dots in (False, True)
    ] + [hisq_dslash.dslash_launch(LATTICE, 8, SINGLE, n)]


def wilson(n: int) -> list[Launch]:
    forms = [
        (SINGLE, wilson_dslash.TWELVE),
        (DOUBLE, wilson_dslash.FULL),
        (DOUBLE, wilson_dslash.TWELVE),
        (DOUBLE, wilson_dslash.IN_FIELDS),
    ]
    return [
        wilson_dslash.wilson_dslash_launch(LATTICE, dtype, n, -1, wilson_dslash.HOP_CLOVER, form)
        for dtype, form in forms
    ]


def linear_algebra(n: int) -> list[Launch]:
    return [
        cg_update.cg_advance_launch(n, SINGLE, 7200),
        lane_blas.lane_update_launch(n, SINGLE, 7200, 3),
        *(columns.reduction(name, n, DOUBLE, 7200) for name in columns.REDUCTIONS),
    ]


@pytest.mark.parametrize("kernels", [hisq, wilson, linear_algebra])
def test_a_kernel_knows_those_that_a_narrower_block_starts(kernels: Any) -> None:
    """Links in the same form; rows in the grid need not fit."""
    for launch, *expected in zip(*map(kernels, (24, *NARROWER)), strict=True):
        assert launch.narrower((*NARROWER, 24)) == expected
    for launch in kernels(1):
        assert launch.narrower((*NARROWER, 24)) == []


class Compiler:
    """Compiles without a device, and keeps which thread did what; the one beside only while `free` is set."""

    def __init__(self) -> None:
        self.threads: list[tuple[Launch, str]] = []
        self.free = threading.Event()
        self.free.set()

    @property
    def launches(self) -> list[Launch]:
        return [launch for launch, _ in self.threads]

    def __call__(self, launch: Launch, device: int) -> str:
        name = threading.current_thread().name
        self.threads.append((launch, name))
        if name.startswith("beside"):
            self.free.wait(60)
        compile_only(launch.file, [launch.instance], "sm_90")
        return launch.instance


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> Iterator[Compiler]:
    """In place of CuPy's, with one thread beside this one."""
    compile._threads()  # its first use of NVRTC is on its own
    compiler, pool = Compiler(), ThreadPoolExecutor(1, "beside")
    function = cache(compiler)
    monkeypatch.setattr(compile, "_function", function)
    monkeypatch.setattr(compile, "_compiled", lambda *which: function(*which) is None)
    monkeypatch.setattr(compile, "_threads", lambda: pool)
    compile._started.cache_clear()
    yield compiler
    compiler.free.set()
    pool.shutdown(cancel_futures=True)
    compile._ahead.clear()
    compile._started.cache_clear()


def start(n: int) -> str:
    return compile._started(columns.reduction("norms2", n, SINGLE, 7200), 0, compile._widths)


def test_what_is_compiled_ahead_is_compiled_once(compiler: Compiler) -> None:
    with compile.narrowing((2, 4)):
        assert start(8) == "norms2<float, 8, 128>"
        compile.settle()
        assert [start(4), start(2)] == ["norms2<float, 4, 128>", "norms2<float, 2, 256>"]
    assert len(compiler.launches) == len(set(compiler.launches)) == 3
    assert [name.startswith("beside") for _, name in compiler.threads].count(True) == 2


def test_a_kernel_is_not_compiled_twice_at_a_time(compiler: Compiler) -> None:
    """It is waited for if it is under way, and taken over if it has not begun."""
    compiler.free.clear()
    with compile.narrowing((2, 4)):
        start(8)
        start(2)
        threading.Timer(0.05, compiler.free.set).start()
        start(4)
    assert len(compiler.launches) == len(set(compiler.launches)) == 3


def test_what_has_not_begun_ends_with_the_solve(compiler: Compiler) -> None:
    """A solve within another one leaves it alone."""
    compiler.free.clear()
    with compile.narrowing((1, 2, 4)):
        start(8)
        with compile.narrowing(()):
            pass
        assert len(compile._ahead) == 3
    assert len(compile._ahead) <= 1
    compiler.free.set()
    compile.settle()
    assert len(compiler.launches) <= 2


def test_nothing_is_compiled_ahead_of_other_work(compiler: Compiler) -> None:
    start(8)
    assert not compile._ahead and len(compiler.launches) == 1


@pytest.mark.gpu
def test_a_device_has_the_kernel_when_the_block_narrows() -> None:
    cupy = pytest.importorskip("cupy")
    field = cupy.ones((7207, 16), SINGLE)
    others = set(compile._ahead)  # of tests before this one
    with compile.narrowing((8,)):
        block_blas.norms2(field)
        (ahead,) = (future for key, future in compile._ahead.items() if key not in others)
        ahead.result()
        assert (block_blas.norms2(field[:, :8].copy()) == 7207).all()
        assert others.issuperset(compile._ahead)
