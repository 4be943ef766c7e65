"""Workers on the CPU use again what their tasks freed, and return it when a chunk ends."""

import os
import platform
import subprocess
import sys

import pytest

from pipeline.worker.memory import REUSING

SCRIPT = """
import resource, threading
import numpy as np
from pipeline.worker.memory import trim_heap

SIZE, TIMES = 64 << 20, 20

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def resident():
    pages = int(open("/proc/self/statm").read().split()[1])
    return pages * resource.getpagesize()

def task():
    for _ in range(2):
        np.full(SIZE, 1, np.uint8)
    before = faults()
    for _ in range(TIMES):
        np.full(SIZE, 1, np.uint8)
    renewed = faults() - before
    np.full(SIZE, 1, np.uint8)
    held = resident()
    trim_heap()
    print(renewed, held - resident())

thread = threading.Thread(target=task)  # a worker's tasks do not run in its main thread
thread.start()
thread.join()
"""


def measured(environment: dict[str, str]) -> list[int]:
    """Page faults of 20 arrays of 64 MB after two, and bytes that are returned in the end."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    answer = subprocess.run(
        [sys.executable, "-c", SCRIPT], env={**plain, **environment}, capture_output=True, check=True
    )
    return [int(word) for word in answer.stdout.split()]


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the allocator of glibc is set here")
def test_freed_memory_is_used_again_and_returned():
    renewed, returned = measured(REUSING)
    assert renewed < 10 and returned > 50 << 20
    assert measured({})[0] > 20 * renewed + 100  # without it every array has pages of its own
