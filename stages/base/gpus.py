"""GPUs that a worker process owns, and which of them hold what it computes on.

Each stage says how GPUs share what it holds; while it runs, what it makes lies on all GPUs of the worker.
Whoever watches over their memory is told when more of it is mapped.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib import import_module
from importlib.util import find_spec
from itertools import permutations
from types import ModuleType
from typing import Protocol

from stages.base.errors import InputError

GPUS_PER_WORKER = "QUARKLINE_GPUS_PER_WORKER"
"""Variable of a worker's environment: GPUs that share its lattice, the first of those that it sees."""

INSTALL = "pip install -e '.[cuda13]' (or [cuda12]) in quarkline's checkout"
"""What brings all that GPUs need."""

UNEQUAL = 1.1
"""Of the memory of one GPU to that of another: beyond, they do not share a lattice."""


def imported_cupy() -> ModuleType:
    """CuPy. Raises InputError where it cannot be imported."""
    try:
        return import_module("cupy")
    except ImportError as error:
        raise InputError(f"GPUs need CuPy ({error}): {INSTALL}") from error
    except OSError as error:
        remedy = "set CUPY_CACHE_DIR to a folder that can be written"
        raise InputError(f"CuPy keeps compiled kernels, and cannot ({error}): {remedy}") from error
    except Exception as error:  # as one of another NumPy's or Python's raises
        reason = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        raise InputError(f"CuPy cannot be imported ({reason}): {INSTALL}") from error


def gpus_per_worker() -> int:
    """GPUs that share the lattice of this process; 1 without `GPUS_PER_WORKER`. Raises InputError."""
    wanted = os.environ.get(GPUS_PER_WORKER, "1")
    if not wanted.isdecimal() or not int(wanted):
        raise InputError(
            f"{GPUS_PER_WORKER} must be the number of GPUs that share a lattice, 1 or more, got {wanted!r}"
        )
    return int(wanted)


def gpus_of(backend: str) -> int:
    """GPUs of this process that share what it computes on a backend; 1 on the 'cpu'."""
    return gpus_per_worker() if backend == "cuda" else 1


def visible_gpus() -> tuple[int, ...]:
    """GPUs that share the lattice of this process, as CUDA numbers them; InputError where some lack."""
    from cupy.cuda import runtime

    wanted, visible = gpus_per_worker(), int(runtime.getDeviceCount())
    if wanted > visible:
        raise InputError(
            f"{GPUS_PER_WORKER} must be the number of GPUs that share a lattice, 1 to {visible} here, "
            f"got {wanted}"
        )
    return tuple(range(wanted))


def check_sharing(devices: tuple[int, ...]) -> None:
    """Raise InputError unless these devices, as CUDA numbers them, can hold one lattice together."""
    if find_spec("cuda") is None or find_spec("cuda.bindings") is None:
        raise InputError(f"a lattice on several GPUs needs cuda-bindings, which is not installed: {INSTALL}")
    from cupy.cuda import runtime

    for device, other in permutations(set(devices), 2):
        if not runtime.deviceCanAccessPeer(device, other):
            raise InputError(
                f"GPU {device} cannot read the memory of GPU {other} (see `nvidia-smi topo -p2p r`): "
                "a lattice lies on one GPU here, take one GPU per worker"
            )
    sizes = {device: runtime.getDeviceProperties(device)["totalGlobalMem"] for device in devices}
    if max(sizes.values()) > UNEQUAL * min(sizes.values()):
        listed = ", ".join(f"{device}: {size / 1e9:.0f} GB" for device, size in sizes.items())
        raise InputError(
            f"the GPUs that share a lattice must be of one size, got {listed}: choose others "
            "(CUDA_VISIBLE_DEVICES), or one GPU per worker"
        )


class Spread(Protocol):
    """Arrays of a task, which the GPUs of a worker can share."""

    def spread(self) -> AbstractContextManager[None]:
        """While the block runs, what is made lies on all GPUs of this process."""

    def gather(self) -> AbstractContextManager[None]:
        """While the block runs, within one of `spread`, what is made lies on the first of them."""


_spread: Spread | None = None
"""Of the stage that runs."""


@contextmanager
def sharing(spread: Spread | None, backend: str) -> Iterator[None]:
    """While the block runs, what is made lies on the GPUs of this process as a stage says.

    Args:
        spread: the stage's word; None: what is made lies on one GPU.
        backend: nothing changes on the 'cpu'.

    Raises InputError where there are fewer GPUs than the environment says, and as `spread` does.
    """
    global _spread
    if backend != "cuda" or gpus_per_worker() == 1:
        yield
        return
    visible_gpus()
    outer, _spread = _spread, spread
    try:
        with spread.spread() if spread else outer.gather() if outer else nullcontext():
            yield
    finally:
        _spread = outer


class MappedMemory(Protocol):
    """Memory of arrays that lie on several GPUs."""

    devices: tuple[int, ...]
    """The GPU of each part, as CUDA numbers it."""

    @property
    def used_bytes_of_parts(self) -> list[int]:
        """Bytes of arrays on each."""

    @property
    def free_bytes_of_parts(self) -> list[int]:
        """Bytes that are mapped on each, and that no array uses: they go where memory is short."""

    def release(self) -> None:
        """Give what no array uses back to the GPUs."""


mapped: list[MappedMemory] = []
"""All of this process."""

listeners: list[Callable[[], None]] = []
"""Called whenever an array took such memory."""


def main() -> int:
    """Exit code of `python -m stages.base.gpus`: 1, and a sentence on standard error, without CuPy."""
    try:
        imported_cupy()
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
