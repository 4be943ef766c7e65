"""Toy stages on a GPU."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import NamedTuple

import numpy as np
import toy_stages as toys

from pipeline import At, Cost, Node, Resources, stage
from stages.shared.costs import TimeSlices


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
def crashing(*, at: At, bad: tuple[str, ...], gpu: int = 0) -> toys.Field:
    """Writes outside of the memory of a GPU, which destroys its context."""
    import cupy

    toys.executed("crashing", at)
    with cupy.cuda.Device(gpu):
        values = cupy.zeros(6)
        cupy.RawKernel(CRASH, "crash")((1,), (1,), (values, np.bool_(at.one("config") in bad)))
        return toys.Field(values.get())


EXTENTS = (16, 16, 16, 32)
NUMBERS = 1 << 30
"""Of the field below: 8 GiB of complex64."""


def shared_cost(node: Node) -> Cost:
    return Cost(device_memory=8 * NUMBERS, shares=TimeSlices(EXTENTS))


@stage(version="1", over=("config",), resources=Resources(device=1), cost=shared_cost)
def shared(*, at: At, folder: str = "", victim: str = "") -> toys.Field:
    """Fills a field on all GPUs of the worker, which is killed with it, once, for `victim`."""
    import cupy

    from stages.lqcd.kernels.cuda.devices.group import current_group
    from stages.lqcd.kernels.fields import zero_field

    toys.executed("shared", at)
    group = current_group()
    values = zero_field((2, NUMBERS // 2), np.complex64, cupy)
    values += 1
    cupy.cuda.get_current_stream().synchronize()
    at.record(gpus=len(group.ids) if group else 1)
    killed = Path(folder, "killed")
    if at.one("config") == victim and not killed.exists():
        killed.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return toys.Field(values[:, : 1 << 20].sum(axis=1).real.get())


@stage(version="1", over=("config",), resources=Resources(device=1), cost=shared_cost)
def losing(*, at: At, folder: str) -> toys.Field:
    """Meets, once, the error of a GPU that is lost."""
    toys.executed("losing", at)
    met = Path(folder, "met")
    if not met.exists():
        met.touch()
        raise RuntimeError("the CUDA driver answered CUDA_ERROR_ECC_UNCORRECTABLE")
    return toys.Field(np.ones(6))
