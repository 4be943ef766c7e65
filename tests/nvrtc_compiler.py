"""Compilation of `.cu` files without a device, and what their kernels take of a multiprocessor."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from cupy.cuda import nvrtc

from stages.lqcd.kernels.cuda.compile import OPTIONS, source


@dataclass(frozen=True)
class Usage:
    """What one kernel takes of a multiprocessor: registers per thread, bytes spilled, static shared bytes."""

    registers: int
    spilled_bytes: int
    shared_bytes: int


def compile_only(file: str, instances: Sequence[str], arch: str) -> dict[str, Usage]:
    """Compile instances of a `.cu` file for e.g. ``sm_90`` without a driver and report what each one uses.

    Raises NVRTCError, whose text is preceded by the compiler's log, if the source does not compile.
    """
    program = nvrtc.createProgram(source(file), file, (), ())
    for instance in instances:
        nvrtc.addNameExpression(program, instance)
    options = (*OPTIONS, "-ftz=true", f"-arch={arch}", "--ptxas-options=-v")  # CuPy adds -ftz=true as well
    try:
        nvrtc.compileProgram(program, options)
        log = nvrtc.getProgramLog(program)
        return {instance: _usage(log, nvrtc.getLoweredName(program, instance)) for instance in instances}
    except nvrtc.NVRTCError as error:
        error.add_note(nvrtc.getProgramLog(program))
        raise
    finally:
        nvrtc.destroyProgram(program)


def _usage(log: str, mangled: str) -> Usage:
    """Read ptxas' report of one kernel: two lines after the one that names it."""
    _, _, report = log.partition(f"Function properties for {mangled}\n")
    properties, resources = report.splitlines()[:2]
    spills = re.findall(r"(\d+) bytes spill", properties)
    registers = re.search(r"Used (\d+) registers", resources)
    shared = re.search(r"(\d+) bytes smem", resources)
    if registers is None:
        raise ValueError(f"no register count for {mangled} in the report of ptxas:\n{log}")
    return Usage(int(registers[1]), sum(map(int, spills)), int(shared[1]) if shared else 0)
