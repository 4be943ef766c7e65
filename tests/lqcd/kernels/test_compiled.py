"""What CPU kernels promise beside their values: the same bits for any number of threads; compiling once."""

import os
import subprocess
import sys
import threading
from pathlib import Path
from queue import Queue

import numba
import pytest

from stages.base.compilation import telling
from stages.lqcd.kernels import block_blas, cg_update, slice_products
from stages.lqcd.kernels.cg_update import CGCoefficients
from stages.lqcd.kernels.cpu import compiled
from stages.lqcd.lattice.geometry import Lattice

ROOT = Path(__file__).resolve().parents[3]


def test_who_waits_for_a_kernel_of_another_process_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(compiled, "gettempdir", lambda: str(tmp_path))
    told = Queue()

    def second():
        with telling(told.put), compiled._turn("a kernel"):
            told.put("its turn")

    waiting = threading.Thread(target=second)
    with compiled._turn("a kernel"):
        waiting.start()
        assert told.get(timeout=60) == 0
    assert told.get(timeout=60) == "its turn"
    waiting.join()


@pytest.fixture
def threads():
    """The numbers of threads to compare; the setting is restored."""
    if numba.config.NUMBA_NUM_THREADS < 2:
        pytest.skip("needs two threads (NUMBA_NUM_THREADS)")
    usual = numba.get_num_threads()
    yield (1, 2)
    numba.set_num_threads(usual)


def cg_residual(r, ap):
    coefficients = CGCoefficients.zeros(r)
    coefficients.r2[...] = coefficients.gamma[...] = coefficients.pap[...] = 1
    cg_update.cg_residual(r, ap, coefficients)
    return coefficients.r2


REDUCTIONS = {
    "gram": lambda x, y, lattice: block_blas.gram(x, y),
    "dots": lambda x, y, lattice: block_blas.dots(x, y),
    "norms2": lambda x, y, lattice: block_blas.norms2(x),
    "cg_residual": lambda x, y, lattice: cg_residual(x.copy(), y),
    "slice_dots": lambda x, y, lattice: slice_products.slice_dots(x, y, lattice),
}


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_sums_have_the_same_bits_for_any_number_of_threads(threads, random, reduction):
    lattice = Lattice((10, 14, 6, 18))
    x, y = random(lattice.half_volume, 3, 3), random(lattice.half_volume, 3, 3)
    results = []
    for count in threads:
        numba.set_num_threads(count)
        results.append(REDUCTIONS[reduction](x, y, lattice).tobytes())
    assert results[0] == results[1]


CALL_KERNELS = """
import hashlib
import numpy as np
from stages.lqcd.kernels import block_blas, cpu, hisq_dslash
import stages.lqcd.kernels.cpu.block_blas
import stages.lqcd.kernels.cpu.hisq_dslash
from stages.lqcd.gauge.heatbath import thermalised
from stages.lqcd.gauge.hisq import hisq_links
from stages.lqcd.lattice.geometry import Lattice
assert cpu.hisq_dslash._kernel.cache_info().currsize == 0, "compiled at import"
lattice = Lattice((4, 4, 4, 4))
gauge = thermalised(lattice, 6.0, 5, "a", 2, 1)
links = hisq_links(gauge, lattice, boundary="periodic", naik_epsilon=0.0)
x = np.random.default_rng(3).standard_normal((128, 3, 2)).astype(np.complex64)
ones = np.ones((4, 2, 128, 3, 3), complex)
packed = hisq_dslash.pack_fields(ones, ones, lattice, 0, np.complex64)
y = hisq_dslash.hisq_dslash(packed, x, np.empty_like(x))
results = gauge, links.fat, links.long, links.smeared(), y, block_blas.gram(x, y)
kernels = cpu.hisq_dslash._kernel(2, 4, 16, False, False), cpu.block_blas._gram_kernel(2, 2, 4)
print(sum(sum(kernel.share.stats.cache_misses.values()) for kernel in kernels))
print(*(hashlib.sha256(np.ascontiguousarray(result)).hexdigest() for result in results))
"""


@pytest.mark.slow
def test_a_second_process_compiles_nothing_and_has_the_same_bits(tmp_path):
    misses, digests = [], set()
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", CALL_KERNELS],
            cwd=ROOT,
            env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)},
            capture_output=True,
            text=True,
            check=True,
        )
        first, second = done.stdout.splitlines()
        misses.append(int(first))
        digests.add(second)
    assert misses == [2, 0]
    assert len(digests) == 1


COMPILE_ONE = """
from stages.lqcd.kernels.cpu import block_blas
print(sum(block_blas._gram_kernel(2, 2, 4).share.stats.cache_misses.values()))
"""


@pytest.mark.slow
def test_processes_that_start_together_compile_once(tmp_path):
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    options = {"cwd": ROOT, "env": environment, "stdout": subprocess.PIPE, "text": True}
    together = [subprocess.Popen([sys.executable, "-c", COMPILE_ONE], **options) for _ in range(4)]
    misses = [int(process.communicate()[0]) for process in together]
    assert sorted(misses) == [0, 0, 0, 1]
