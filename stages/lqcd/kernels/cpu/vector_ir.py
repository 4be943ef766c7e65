"""Complex linear algebra on vector registers, emitted as LLVM IR inside Numba intrinsics.

Fields have the right-hand side fastest, so a run of complex numbers is read as a vector of reals re, im,
re, im, ... A product u v of a complex scalar with such a vector costs two fused multiply-adds per register:
Re(u) v and Im(u) v go to two accumulators, which are combined once, at the end, by one swap and one sign:
sum u v = sum Re(u) v + i sum Im(u) v. Addresses are integers; nothing here knows shapes or checks bounds.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from inspect import Parameter, signature
from typing import TypeAlias

import llvmlite.binding as llvm
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.base import BaseContext
from numba.core.typing.templates import Signature
from numba.extending import intrinsic

Value: TypeAlias = ir.Value
"""What an instruction computes: an address or another integer, a real, a vector of reals."""

Builder: TypeAlias = ir.IRBuilder

Code: TypeAlias = Callable[[BaseContext, Builder, Signature, list[Value]], Value]
"""What emits the instructions of an intrinsic for the compiler."""

INT32, INT64 = ir.IntType(32), ir.IntType(64)


def _register_bytes() -> int:
    features = llvm.get_host_cpu_features()
    return 64 if features.get("avx512f") else 32 if features.get("avx") else 16


REGISTER_BYTES = _register_bytes()
REGISTERS = 32 if REGISTER_BYTES != 32 else 16
"""Vector registers of this processor: AVX-512 and 64-bit ARM have 32; AVX has 16."""

CACHE_LINE = 64
"""Bytes."""


def split_lanes(lanes: int, itemsize: int) -> list[tuple[int, int]]:
    """`lanes` consecutive reals as registers: (byte offset, width) of each, the last one may be narrower."""
    width = REGISTER_BYTES // itemsize
    return [(first * itemsize, min(width, lanes - first)) for first in range(0, lanes, width)]


def emitted(body: Callable[..., None]) -> Callable[..., None]:
    """A function for compiled kernels to call, of the instructions that ``body(builder, ...)`` emits.

    Its arguments are those of `body` behind the builder: first each `Value`, which the kernel computes, then
    each `int`, a constant that is written out or closed over where the kernel calls.
    """
    parameters = list(signature(body).parameters.values())[1:]
    count = [parameter.annotation for parameter in parameters].count("Value")

    def definition(typing: object, *kinds: types.Type) -> tuple[Signature, Code]:
        constants = [kind.literal_value for kind in kinds[count:]]

        def generate(context: BaseContext, builder: Builder, called: Signature, values: list[Value]) -> Value:
            body(builder, *values[:count], *constants)
            return context.get_dummy_value()

        return types.void(*kinds), generate

    update_wrapper(definition, body)
    first = Parameter("typing", Parameter.POSITIONAL_OR_KEYWORD)
    definition.__signature__ = signature(body).replace(parameters=[first, *parameters])  # type: ignore[attr-defined]
    return intrinsic(prefer_literal=True)(definition)


class Emitter:
    """Loads, stores and arithmetic on vectors of float32 (itemsize 4) or float64 (8) at integer addresses."""

    def __init__(self, builder: Builder, itemsize: int) -> None:
        self.builder = builder
        self.itemsize = itemsize
        self.real = ir.FloatType() if itemsize == 4 else ir.DoubleType()

    def load(self, address: Value, offset: int, lanes: int) -> Value:
        return self._load(address, offset, ir.VectorType(self.real, lanes), self.itemsize)

    def load_real(self, address: Value, offset: int) -> Value:
        return self._load(address, offset, self.real, self.itemsize)

    def load_index(self, address: Value, offset: int) -> Value:
        """An int32 that is not negative, widened to 64 bits."""
        return self.builder.zext(self._load(address, offset, INT32, 4), INT64)

    def store(self, vector: Value, address: Value, offset: int) -> None:
        self.builder.store(vector, self._pointer(address, offset, vector.type), align=self.itemsize)

    def prefetch(self, address: Value, offset: int, *, once: bool = False) -> None:
        """Asks for the cache line of `address + offset`, to be read soon; once: and not again."""
        pointer = self._pointer(address, offset, ir.IntType(8))
        kinds = [pointer.type, INT32, INT32, INT32]
        prefetch = cgutils.get_or_insert_function(
            self.builder.module, ir.FunctionType(ir.VoidType(), kinds), "llvm.prefetch.p0i8"
        )
        reading, locality, data = 0, 0 if once else 3, 1
        self.builder.call(
            prefetch, [pointer, *(ir.Constant(INT32, value) for value in (reading, locality, data))]
        )

    def in_order(self, address: Value) -> Value:
        """The address, of which the compiler knows nothing before this place.

        Else it asks for all that is to be read soon at once, which is more than a core can wait for.
        """
        return self.builder.asm(ir.FunctionType(INT64, [INT64]), "", "=r,0", [address], True)

    def splat(self, scalar: Value, lanes: int) -> Value:
        """A vector with `scalar` in every lane."""
        nothing = ir.Constant(ir.VectorType(self.real, lanes), ir.Undefined)
        one = self.builder.insert_element(nothing, scalar, ir.Constant(INT32, 0))
        return self._shuffled(one, nothing, [0] * lanes)

    def pair(self, a: Value, b: Value, number: int) -> Value:
        """A pair of lanes of a, then the same one of b."""
        first = [2 * number, 2 * number + 1]
        return self._shuffled(a, b, [*first, *(a.type.count + lane for lane in first)])

    def twice(self, a: Value, b: Value, lane: int) -> Value:
        """A lane of a twice, then the same one of b."""
        return self._shuffled(a, b, [lane, lane, a.type.count + lane, a.type.count + lane])

    def halves_exchanged(self, vector: Value) -> Value:
        """The second half of the lanes, then the first."""
        lanes = vector.type.count
        return self._shuffled(vector, vector, [(lane + lanes // 2) % lanes for lane in range(lanes)])

    def rounded(self, scalar: Value) -> Value:
        """A float64 scalar in this emitter's precision."""
        return scalar if self.itemsize == 8 else self.builder.fptrunc(scalar, self.real)

    def doubled(self, vector: Value) -> Value:
        """A vector of this emitter's precision in float64."""
        double = ir.VectorType(ir.DoubleType(), vector.type.count)
        return vector if self.itemsize == 8 else self.builder.fpext(vector, double)

    def fma(self, a: Value, b: Value, c: Value) -> Value:
        """``a b + c``, rounded once."""
        kind = a.type
        name = f"llvm.fma.v{kind.count}f{8 * self.itemsize}"
        function_type = ir.FunctionType(kind, [kind] * 3)
        return self.builder.call(
            cgutils.get_or_insert_function(self.builder.module, function_type, name), [a, b, c]
        )

    def swapped(self, vector: Value) -> Value:
        """Neighbouring lanes exchanged: im, re, im, re, ..."""
        return self._shuffled(vector, vector, [lane ^ 1 for lane in range(vector.type.count)])

    def add_times_i(self, a: Value, b: Value, sign: int) -> Value:
        """``a + sign i b`` on interleaved complex numbers."""
        signs = [float(sign if lane % 2 else -sign) for lane in range(b.type.count)]
        return self.fma(self.swapped(b), ir.Constant(b.type, signs), a)

    def times_i_signs(self, lanes: int) -> Value:
        """-1, 1, -1, 1, ...: i v is these signs times `swapped(v)`."""
        return ir.Constant(
            ir.VectorType(self.real, lanes), [1.0 if lane % 2 else -1.0 for lane in range(lanes)]
        )

    def times_i(self, vector: Value) -> Value:
        """``i v`` of interleaved complex numbers."""
        return self.builder.fmul(self.swapped(vector), self.times_i_signs(vector.type.count))

    def added_product(self, a: Value, b: Value, total: Value) -> Value:
        """``a b + total``, rounded once; ``a b`` where `total` is None."""
        return self.builder.fmul(a, b) if total is None else self.fma(a, b, total)

    def joined(self, a: Value, b: Value) -> Value:
        """The lanes of a, then those of b, then some that mean nothing, up to a power of two."""
        wide, lanes = a.type.count, a.type.count + b.type.count
        widened = self._shuffled(b, b, [min(lane, b.type.count - 1) for lane in range(wide)])
        width = 1 << (lanes - 1).bit_length()
        return self._shuffled(a, widened, [min(lane, lanes - 1) for lane in range(width)])

    def even_lanes(self, a: Value, b: Value) -> Value:
        """a[0], b[0], a[2], b[2], ..."""
        lanes = a.type.count
        return self._shuffled(a, b, [lane if lane % 2 == 0 else lanes + lane - 1 for lane in range(lanes)])

    def zeros(self, lanes: int) -> Value:
        """A variable for a vector of `lanes` reals, set to zero: a register, once optimised."""
        kind = ir.VectorType(self.real, lanes)
        variable = cgutils.alloca_once(self.builder, kind)
        self.builder.store(ir.Constant(kind, [0.0] * lanes), variable)
        return variable

    def index(self, value: int) -> Value:
        """A 64-bit integer constant."""
        return ir.Constant(INT64, value)

    def offset(self, address: Value, number: Value, stride: int) -> Value:
        """Address + number * stride, `number` a 64-bit value."""
        return self.builder.add(address, self.builder.mul(number, self.index(stride)))

    def lanes_of(self, vector: Value, first: int, lanes: int) -> Value:
        """`lanes` neighbouring lanes of a vector."""
        return self._shuffled(vector, vector, list(range(first, first + lanes)))

    def _shuffled(self, a: Value, b: Value, lanes: list[int]) -> Value:
        return self.builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(INT32, len(lanes)), lanes))

    def _load(self, address: Value, offset: int, kind: ir.Type, alignment: int) -> Value:
        return self.builder.load(self._pointer(address, offset, kind), align=alignment)

    def _pointer(self, address: Value, offset: int, kind: ir.Type) -> Value:
        shifted = self.builder.add(address, self.index(offset)) if offset else address
        return self.builder.inttoptr(shifted, kind.as_pointer())


class ComplexSums:
    """Register accumulators for `rows` sums over products scalar times vector, each `lanes` reals wide."""

    def __init__(self, emitter: Emitter, rows: int, lanes: int) -> None:
        self.emitter = emitter
        self.rows = rows
        self.registers = split_lanes(lanes, emitter.itemsize)
        self._re = [self._row() for _ in range(rows)]
        self._im = [self._row() for _ in range(rows)]

    def vectors(self, address: Value, offset: int = 0) -> list[Value]:
        """The registers of one row loaded from `address + offset`."""
        return [self.emitter.load(address, offset + place, width) for place, width in self.registers]

    def add_product(self, row: int, address: Value, offset: int, vectors: list[Value]) -> None:
        """sums[row] += u v, with the complex scalar u at `address + offset`."""
        for sums, part in ((self._re[row], 0), (self._im[row], self.emitter.itemsize)):
            scalar = self.emitter.load_real(address, offset + part)
            for accumulator, vector in zip(sums, vectors, strict=True):
                factor = self.emitter.splat(scalar, vector.type.count)
                total = self.emitter.fma(factor, vector, self.emitter.builder.load(accumulator))
                self.emitter.builder.store(total, accumulator)

    def totals(self, row: int, conjugate: bool = False) -> list[Value]:
        """The finished sums of a row; with `conjugate`, those over conj(u) v."""
        load, sign = self.emitter.builder.load, -1 if conjugate else 1
        pairs = zip(self._re[row], self._im[row], strict=True)
        return [self.emitter.add_times_i(load(re), load(im), sign) for re, im in pairs]

    def _row(self) -> list[Value]:
        return [self.emitter.zeros(width) for _, width in self.registers]
