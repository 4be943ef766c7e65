"""Toy stages on a GPU."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import toy_stages as toys

from pipeline import At, Resources, stage


class OnDevice(NamedTuple):
    """A field in the memory of the device: what a transient, resident stage keeps there."""

    values: object


@stage(version="1", over=("config",), transient=True, resident=True, resources=Resources(device=1))
def on_device(field: toys.Field, *, at: At) -> OnDevice:
    toys.executed("on_device", at)
    if at.backend == "cuda":
        import cupy

        return OnDevice(cupy.asarray(field.values))
    return OnDevice(field.values)


@stage(version="1", over=("config", "noise"), resources=Resources(device=1))
def scaled(field: OnDevice, *, at: At) -> toys.Loops:
    toys.executed("scaled", at)
    at.record(module=type(field.values).__module__)
    rows = field.values[None, :4] * (1.0 + float(at.one("noise")))
    return toys.Loops(rows, rows.sum(axis=1))


CRASH = r"""
extern "C" __global__ void crash(double* x, bool bad) { if (bad) x[1ll << 50] = 1.0; else x[0] += 1.0; }
"""


@stage(version="1", over=("config",), resources=Resources(device=1))
def crashing(*, at: At, bad: tuple[str, ...]) -> toys.Field:
    """Writes outside of the device's memory, which destroys the context."""
    import cupy

    toys.executed("crashing", at)
    values = cupy.zeros(6)
    cupy.RawKernel(CRASH, "crash")((1,), (1,), (values, np.bool_(at.one("config") in bad)))
    return toys.Field(values.get())
