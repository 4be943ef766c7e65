"""Occupation of a worker's host over time: the calls of a few functions, innermost first."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import wraps
from importlib import import_module
from typing import Any

import numpy as np

CALLS = {
    "chunk": ("pipeline.worker.task", "_compute_and_commit"),
    "load": ("pipeline.store.store", "Store.load"),
    "commit": ("pipeline.store.store", "Store.commit"),
    "links": ("stages.lqcd.gauge.hisq", "hisq_links"),
    "noise": ("stages.loops.current_loops", "noise_vectors"),
    "dilution": ("stages.lqcd.estimators.stochastic", "dilute"),
    "contraction": ("stages.lqcd.estimators.trace", "LoopTrace.contract"),
    "solve": ("stages.lqcd.solvers.krylov", "KrylovSolver.solve"),
}
"""Phase: module and name of the function whose calls it is."""

Call = tuple[str, float, float]


class Phases:
    """Calls since `watch`, as (phase, begin, end) in seconds since 1970."""

    def __init__(self) -> None:
        self.calls: list[Call] = []

    def watch(self) -> None:
        for phase, (module, path) in CALLS.items():
            owner: Any = import_module(module)
            *parents, name = path.split(".")
            for parent in parents:
                owner = getattr(owner, parent)
            setattr(owner, name, self._timed(phase, getattr(owner, name)))

    def _timed(self, phase: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def timed(*arguments: Any, **options: Any) -> Any:
            begin = time.time()
            try:
                return function(*arguments, **options)
            finally:
                self.calls.append((phase, begin, time.time()))

        return timed


def timeline(calls: list[Call]) -> tuple[np.ndarray, list[str]]:
    """Times at which the innermost phase changes, and the phase from each of them on; '' is none."""
    edges = sorted(
        [(begin, 1, -end, phase) for phase, begin, end in calls]
        + [(end, 0, -begin, phase) for phase, begin, end in calls]
    )
    times, names, stack = [0.0], [""], []
    for moment, opens, _, phase in edges:
        if opens:
            stack.append(phase)
        else:
            stack.remove(phase)
        times.append(moment)
        names.append(stack[-1] if stack else "")
    return np.array(times), names
