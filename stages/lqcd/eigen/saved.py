"""What a run keeps between restart cycles: arrays from which it goes on with the same bits."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from stages.lqcd.eigen.chebyshev import ChebyshevFilter
from stages.lqcd.eigen.spectrum import fingerprint
from stages.lqcd.kernels.dispatch import array_module
from stages.lqcd.kernels.transfer import to_device, to_host
from stages.lqcd.lattice.errors import InputError

if TYPE_CHECKING:
    from stages.lqcd.eigen.run import Run

COLUMNS = 16
"""Vectors that are copied from a device together."""


def snapshot(run: Run) -> dict[str, NDArray]:
    """All that `restore` needs, on the host."""
    space, xp = run.space, array_module(run.space.V)
    arrays = {
        f"vectors_{first}": to_host(
            xp.ascontiguousarray(space.V[..., first : min(first + COLUMNS, space.used)])
        )
        for first in range(0, space.used, COLUMNS)
    }
    counts = [run.restarts, run.matvecs, run.moves, run.fresh, run.fresh_steps, run.confirming, run.confirmed]
    return {
        **arrays,
        "configuration": _configuration(run),
        "operator": run.fingerprint,
        "next_block": np.array(to_host(space.X)),
        "projected": space.H[: space.used, : space.used].copy(),
        "lost": space.E[: space.used, : space.used].copy(),
        "block_lost": space.loss.copy(),
        "counts": np.array(
            [*counts, space.locked, space.used, space.draws, space.passes, space.second_passes]
        ),
        "filter": np.array(list(asdict(run.filter).values())),
        "numbers": np.array([run.scale, run.seconds]),
        "values": run.values.copy(),
        "residuals": run.residuals.copy(),
        "history": np.array(run.history, float).reshape(-1, 3),
    }


def restore(run: Run, arrays: dict[str, NDArray]) -> None:
    """Put a run where it was. Raises InputError if the arrays are those of another run or operator.

    That is told by one application of A, which `matvecs` does not count.
    """
    if not np.array_equal(arrays["configuration"], _configuration(run)):
        raise InputError(
            "the checkpoint belongs to another run of block Lanczos (fields, precision, vectors, block, "
            "subspace, seed or tolerance differ): remove it to start anew"
        )
    space, xp = run.space, array_module(run.space.V)
    run.fingerprint = arrays["operator"].copy()
    found = fingerprint(run.A, xp, run.method.seed)
    rounding = max(1e-11, 100 * space.unit) * np.abs(found).max()
    if not (np.abs(found - run.fingerprint) <= rounding).all():
        raise InputError(
            f"the checkpoint belongs to another operator (gauge field, boundary or action differ): a random "
            f"vector has x^H A x = {found[0]:.12g}, and {run.fingerprint[0]:.12g} there; remove it to "
            "start anew"
        )
    put = (lambda array: array) if xp is np else to_device
    counts = [int(count) for count in arrays["counts"]]
    run.restarts, run.matvecs, run.moves, run.fresh, run.fresh_steps = counts[:5]
    run.confirming, run.confirmed = bool(counts[5]), bool(counts[6])
    space.locked, space.used, space.draws, space.passes, space.second_passes = counts[7:]
    for first in range(0, space.used, COLUMNS):
        space.V[..., first : min(first + COLUMNS, space.used)] = put(arrays[f"vectors_{first}"])
    space.X[...] = put(arrays["next_block"])
    space.H[: space.used, : space.used] = arrays["projected"]
    space.E[: space.used, : space.used] = arrays["lost"]
    space.loss = arrays["block_lost"].copy()
    low, high, degree = arrays["filter"]
    run.filter = ChebyshevFilter(float(low), float(high), int(degree))
    run.scale, run.before = (float(number) for number in arrays["numbers"])
    run.values, run.residuals = arrays["values"].copy(), arrays["residuals"].copy()
    run.history = [(int(r), int(c), float(x)) for r, c, x in arrays["history"]]


def _configuration(run: Run) -> NDArray[np.float64]:
    method, space = run.method, run.space
    numbers = [
        *run.A.shape,
        run.A.dtype.itemsize,
        run.wanted,
        run.block,
        space.size,
        method.seed,
        method.tolerance,
    ]
    return np.array(numbers, float)
