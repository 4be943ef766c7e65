"""Calls of compiled functions by their address: all that the kernels know of Numba's insides.

A compiled function is called with Numba's own convention, but by code that was compiled without knowing it:
so one parallel loop serves all kernels, and a recorded step is a table of addresses. `tests/lqcd/kernels/
test_calling.py` names the versions of Numba that this has been tried with.
"""

from __future__ import annotations

from typing import TypeAlias

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.base import BaseContext
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import PassManager
from numba.core.dispatcher import Dispatcher
from numba.core.typing.templates import Signature
from numba.extending import intrinsic
from numba.types import Type

from stages.lqcd.kernels.cpu.vector_ir import Builder, Code, Value

ROOM = 2048
"""Bytes that the arguments of a call take at most."""

Intrinsic: TypeAlias = tuple[Signature, Code]
"""What an intrinsic gives the compiler: its types, and what emits its code."""


class WithoutWrappers(CompilerBase):
    """Numba's compiler for what Python does not call."""

    def define_pipelines(self) -> list[PassManager]:
        flags = self.state.flags
        flags.no_cpython_wrapper = flags.no_cfunc_wrapper = True
        return [DefaultPassBuilder.define_nopython_pipeline(self.state)]


class CalledByAddress(WithoutWrappers):
    """Numba's compiler for what is called by its address, with arguments that do not overlap."""

    def define_pipelines(self) -> list[PassManager]:
        self.state.flags.noalias = True
        return super().define_pipelines()


def address_of(function: Dispatcher) -> int:
    """Address of a compiled function, which has one specialisation."""
    (result,) = function.overloads.values()
    return result.library.get_pointer_to_function(result.fndesc.llvm_func_name)


@intrinsic(prefer_literal=True)
def lay_out(
    typing: object,
    loop: Type, address: Type, items: Type, threads: Type, room: Type,
    arguments: types.BaseTuple, bounds: types.IntegerLiteral,
) -> Intrinsic:  # fmt: skip
    """Call of the loop at `loop` over a taker of `arguments` from the stack; none if they go to a room.

    bounds: literally 1 if the function takes the first item and the one behind the last before them.
    """

    def generate(context: BaseContext, builder: Builder, signature: Signature, values: list[Value]) -> Value:
        start, function, count, share, kept, others, _ = values
        pairs = zip(arguments.types, cgutils.unpack_tuple(builder, others), strict=True)
        borrowed = [_borrowed(context, builder, kind, value) for kind, value in pairs]
        laid = cgutils.pack_struct(builder, [function, *borrowed])
        if context.get_abi_sizeof(laid.type) > ROOM:
            raise ValueError(f"arguments of a kernel must fit {ROOM} bytes, got {arguments}")
        on_stack = builder.icmp_unsigned("==", kept, kept.type(0))
        stack = cgutils.alloca_once(builder, laid.type)
        place = builder.select(on_stack, stack, builder.inttoptr(kept, stack.type))
        builder.store(laid, place)
        take = _taker(context, builder.module, laid.type, arguments.types, bool(bounds.literal_value))
        taker, at = (builder.ptrtoint(pointer, count.type) for pointer in (take, place))
        with builder.if_then(on_stack):
            _call_at(context, builder, start, 4 * (types.intp,), [taker, at, count, share])
        return taker

    return types.intp(*5 * (types.intp,), arguments, bounds), generate


def _borrowed(context: BaseContext, builder: Builder, kind: Type, value: Value) -> Value:
    """An argument, of an array without its owner: nothing counts who holds it."""
    if not isinstance(kind, types.Array):
        return value
    array = context.make_array(kind)(context, builder, value)
    array.meminfo = cgutils.get_null_value(array.meminfo.type)
    return array._getvalue()


def _taker(
    context: BaseContext, module: ir.Module, laid: ir.Type, arguments: tuple[Type, ...], bounded: bool
) -> ir.Function:
    """(low, high, place): calls the function whose address and arguments lie at a place."""
    convention = context.call_conv
    kind = convention.get_function_type(types.void, 3 * (types.intp,))
    function = ir.Function(module, kind, module.get_unique_name("take"))
    function.linkage = "internal"
    builder = ir.IRBuilder(function.append_basic_block())
    low, high, place = convention.get_arguments(function)
    address, *others = cgutils.unpack_tuple(builder, builder.load(builder.inttoptr(place, laid.as_pointer())))
    bounds, kinds = ([low, high], 2 * (types.intp,)) if bounded else ([], ())
    _call_at(context, builder, address, (*kinds, *arguments), [*bounds, *others])
    convention.return_value(builder, context.get_dummy_value())
    return function


@intrinsic
def call_loop(
    typing: object,
    loop: Type,
    taker: Type,
    place: Type,
    items: Type,
    threads: Type,
) -> Intrinsic:
    """Call of the loop at an address."""

    def generate(context: BaseContext, builder: Builder, signature: Signature, values: list[Value]) -> Value:
        _call_at(context, builder, values[0], signature.args[1:], values[1:])
        return context.get_dummy_value()

    return types.void(*5 * (types.intp,)), generate


@intrinsic
def call(typing: object, address: Type, low: Type, high: Type, place: Type) -> Intrinsic:
    """Call of a compiled function of three integers."""

    def generate(context: BaseContext, builder: Builder, signature: Signature, values: list[Value]) -> Value:
        _call_at(context, builder, values[0], signature.args[1:], values[1:])
        return context.get_dummy_value()

    return types.void(*4 * (types.intp,)), generate


def _call_at(
    context: BaseContext, builder: Builder, address: Value, kinds: tuple[Type, ...], values: list[Value]
) -> None:
    """Call of the compiled function at an address, one that raises nothing."""
    convention = context.call_conv
    kind = convention.get_function_type(types.void, kinds)
    function = builder.inttoptr(address, kind.as_pointer())
    convention.call_function(builder, function, types.void, kinds, values)
