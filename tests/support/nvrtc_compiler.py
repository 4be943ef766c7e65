"""Compilation of `.cu` files without a device, and what their kernels take of a multiprocessor."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import cupy
import numpy as np
from cupy._core import _kernel, core
from cupy._core._carray import Indexer
from cupy._core._scalar import CScalar
from cupy.cuda import nvrtc

from stages.lqcd.kernels.cuda.compile import OPTIONS, SHARE, source
from stages.lqcd.kernels.cuda.launch import Launch


@dataclass(frozen=True)
class Usage:
    """What one kernel takes of a multiprocessor: registers per thread, bytes spilled, static shared bytes.

    told: whether the kernel's module has a place for the share of a device, of several.
    """

    registers: int
    spilled_bytes: int
    shared_bytes: int
    told: bool


def compile_only(
    file: str, instances: Sequence[str], arch: str, further: tuple[str, ...] = ()
) -> dict[str, Usage]:
    """Compile instances of a `.cu` file for e.g. ``sm_90`` without a driver and report what each one uses.

    further: options beside the usual ones.
    Raises NVRTCError, whose text is preceded by the compiler's log, if the source does not compile.
    """
    program = nvrtc.createProgram(source(file), file, (), ())
    for instance in instances:
        nvrtc.addNameExpression(program, instance)
    options = (
        *OPTIONS,
        *further,
        "-ftz=true",
        f"-arch={arch}",
        "--ptxas-options=-v",
    )  # CuPy adds -ftz=true as well
    try:
        nvrtc.compileProgram(program, options)
        log = nvrtc.getProgramLog(program)
        told = SHARE.encode() in nvrtc.getCUBIN(program)
        return {
            instance: _usage(log, nvrtc.getLoweredName(program, instance), told) for instance in instances
        }
    except nvrtc.NVRTCError as error:
        error.add_note(nvrtc.getProgramLog(program))
        raise
    finally:
        nvrtc.destroyProgram(program)


def usages(
    kernels: Iterable[Launch], arch: str, further: tuple[str, ...] = ()
) -> Iterator[tuple[Launch, Usage]]:
    """Compile kernels for an architecture, one program a file, and pair them with what they use."""
    by_file = defaultdict(list)
    for kernel in kernels:
        by_file[kernel.file].append(kernel)
    for file, instances in by_file.items():
        usage = compile_only(file, [kernel.instance for kernel in instances], arch, further)
        yield from ((kernel, usage[kernel.instance]) for kernel in instances)


def compile_elementwise(
    kernel: cupy.ElementwiseKernel, types: dict[str, str], arch: str, scalars: Sequence[str] = ()
) -> str:
    """PTX of one of CuPy's kernels for strided arrays of two axes, of these types by their letters.

    scalars: parameters that are numbers. Raises NVRTCError, whose text is preceded by the compiler's log.
    """
    array, indexer, scalar = 1, 2, 3
    arguments = []
    for each in kernel.params:
        dtype = np.dtype(each.dtype if each.dtype is not None else types.get(each.ctype, "i4"))
        kind = array, cupy.ndarray, dtype, 2, False, True
        if each.name == "_ind":
            kind = indexer, Indexer, None, 2, True, True
        elif each.name in scalars:
            kind = scalar, CScalar, dtype, 0, True, True
        arguments.append(_kernel._ArgInfo(*kind))
    letters = _kernel._TypeMap(tuple(sorted((name, np.dtype(kind)) for name, kind in types.items())))
    code = _kernel._get_elementwise_kernel_code(
        tuple(arguments), letters, kernel.params, kernel.operation, kernel.name, "", **kernel.kwargs
    )
    headers = "".join(f"#include <{name}>\n" for name in core._cupy_header_list)
    program = nvrtc.createProgram(headers + code, kernel.name, (), ())
    own = kernel.kwargs.get("options", ())
    try:
        nvrtc.compileProgram(program, (*core.assemble_cupy_compiler_options(own), f"-arch={arch}"))
        return str(nvrtc.getPTX(program))
    except nvrtc.NVRTCError as error:
        error.add_note(nvrtc.getProgramLog(program))
        raise
    finally:
        nvrtc.destroyProgram(program)


def _usage(log: str, mangled: str, told: bool) -> Usage:
    """Read ptxas' report of one kernel: two lines after the one that names it."""
    _, _, report = log.partition(f"Function properties for {mangled}\n")
    properties, resources = report.splitlines()[:2]
    spills = re.findall(r"(\d+) bytes spill", properties)
    registers = re.search(r"Used (\d+) registers", resources)
    shared = re.search(r"(\d+) bytes smem", resources)
    if registers is None:
        raise ValueError(f"no register count for {mangled} in the report of ptxas:\n{log}")
    return Usage(int(registers[1]), sum(map(int, spills)), int(shared[1]) if shared else 0, told)
