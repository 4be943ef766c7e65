"""Parts of a chunk computed a second time by other kernels, of inputs that are read again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from time import perf_counter

import numpy as np

from pipeline import At
from stages.base.errors import DisagreementError, WrongResultError
from stages.lqcd.dirac.operator import LinearOperator
from stages.lqcd.kernels.checksum import checksum
from stages.lqcd.kernels.dispatch import Array, kernels_of
from stages.lqcd.kernels.transfer import copy_to_host
from stages.lqcd.solvers.solution import SolveStatistics
from stages.lqcd.solvers.witness import Combination, signs

KERNELS = {"cpu": "reference", "cuda": "cpu"}
"""Those that check what was computed on a backend: others than it has used, on the host."""


ROUNDING = 1e-12
"""Of sources that are made on another way, relative."""


@contextmanager
def other_kernels(at: At) -> Iterator[None]:
    """While the block runs, arrays on the host go to kernels that took no part in the chunk.

    Records the seconds that it takes.
    """
    began = perf_counter()
    with kernels_of(KERNELS[at.backend]):
        yield
    at.record(repeated_seconds=perf_counter() - began)


def seed_of(at: At) -> int:
    """A seed for what is drawn in the checks of a chunk: a function of its coordinates."""
    text = repr({dim: list(values) for dim, values in at.items()})
    return int.from_bytes(sha256(text.encode()).digest()[:8], "little")


@contextmanager
def unchanged(what: str, fields: Sequence[Array]) -> Iterator[None]:
    """Raises DisagreementError if the fields change while the block runs, also where the block raises."""
    before = [checksum(field) for field in fields]
    try:
        yield
    finally:
        if [checksum(field) for field in fields] != before:
            raise DisagreementError(f"{what} changed in memory while they were in use")


def check_fields(what: str, fields: Array, again: Array) -> None:
    """Raise WrongResultError unless fields ``[*, N]`` are those that were made again on the host."""
    there = copy_to_host(fields)
    distance, size = (float(np.linalg.norm(each)) for each in (there - again, again))
    if not distance <= ROUNDING * size:
        raise WrongResultError(
            f"{what} are others when they are made again: they differ by {distance:.3g}, of {size:.3g}"
        )


def check_solutions(
    at: At, M: LinearOperator, b: Array, x: Array, statistics: SolveStatistics, amplified: float
) -> None:
    """Raise WrongResultError unless M x = b of all columns, M made again, as well as the solver says.

    amplified: times that the residual of M x = b may be larger than that of the even-odd system.
    """
    seen = Combination.like(b)
    rng = np.random.default_rng(seed_of(at))
    system, full = (np.concatenate(each) for each in (statistics.residual, statistics.full_residual))
    seen.add(b, x, np.minimum(full, amplified * system), signs(rng, b.shape[-1]))
    seen.check(M, "solutions")
    record_repeated(at, f"M x of {b.shape[-1]} solutions")


def record_repeated(at: At, what: str) -> None:
    """Keep with the chunk what of it was computed a second time, and by which kernels."""
    at.record(repeated=f"{what}, by the {KERNELS[at.backend]} kernels of the host")
