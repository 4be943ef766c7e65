"""Memory that a run of block Lanczos holds, and memory that is free."""

from __future__ import annotations

from typing import Any

import numpy as np

from stages.base.errors import InputError
from stages.base.host_memory import available_memory
from stages.lqcd.kernels.dispatch import implementation_of

WORK = 128 << 20
"""Slabs of the basis that are computed apart from their place, small matrices."""

FIELDS = 5
"""Blocks beside the basis: three of the iteration, one of a measurement, one inside the operator."""


def needed_bytes(dimension: int, itemsize: int, vectors: int, block: int, subspace: int) -> int:
    """The basis, and the blocks or, at the end, the result and the block inside the operator."""
    return sum(needed_terms(dimension, itemsize, vectors, block, subspace).values())


def needed_terms(dimension: int, itemsize: int, vectors: int, block: int, subspace: int) -> dict[str, int]:
    """`needed_bytes` by what they hold."""
    blocks = {"blocks of Lanczos": FIELDS * block, f"eigenvectors ({vectors})": vectors + block}
    name = max(blocks, key=lambda each: blocks[each])
    return {
        f"basis of Lanczos ({subspace} vectors)": dimension * itemsize * subspace,
        name: dimension * itemsize * blocks[name],
        "workspace of Lanczos": WORK,
    }


def available_bytes(xp: Any) -> int:
    """Free memory where arrays of `xp` live; on a GPU no more than the limit of CuPy's pool leaves.

    Of several GPUs that share fields, as many times what the fullest has.
    """
    if xp is np:
        return available_memory()
    return int(implementation_of("fields.available_bytes", "cuda")())


def check_memory(needed: int, available: int, vectors: int, fitting: int) -> None:
    """Raise InputError if it does not fit; fitting: the number of vectors that does."""
    if needed > available:
        raise InputError(
            f"{vectors} eigenvectors take {needed / 2**30:.3g} GiB, {available / 2**30:.3g} GiB are free: "
            f"at most {fitting} vectors fit (with the subspace chosen for them)"
        )
