"""Covariant displacements of fields on time slices, named by words such as "+x-y".

A word is a path from x: (D f)(x) is the product of the links along the path times f at its end. "+x" stands
for U_x(x) f(x + x^), "-x" for U_x(x - x^)^dag f(x - x^), "+x-y" for the first applied to the second. The
adjoint of D is the displacement along the path back.
"""

from __future__ import annotations

import re

from stages.base.errors import InputError
from stages.lqcd.kernels import slice_products
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.lattice.geometry import Lattice

AXES = "xyz"
LONGEST = 3
"""Steps of a word."""


def steps_of(word: str) -> tuple[tuple[int, int], ...]:
    """(mu, 1 or -1) of each step of a word; "" has none. Raises InputError."""
    steps = re.findall("[+-][xyz]", str(word))
    if "".join(steps) != word or len(steps) > LONGEST:
        raise InputError(
            f"a displacement is a word of up to {LONGEST} of +x, -x, +y, -y, +z, -z, such as '+x-y', "
            f"or '' for none, got {word!r}"
        )
    return tuple((AXES.index(axis), 1 if sign == "+" else -1) for sign, axis in steps)


def reversed_word(word: str) -> str:
    """The path back, whose displacement is the adjoint. Raises InputError."""
    steps = reversed(steps_of(word))
    return "".join(("-" if step == 1 else "+") + AXES[mu] for mu, step in steps)


def displaced(
    links: Array | None,
    lattice: Lattice,
    field: Array,
    word: str,
    scratch: tuple[Array, Array],
    first: int = 0,
) -> Array:
    """The field displaced along a word, in one of two arrays like it; the field itself for "".

    links: ``[mu, parity, site, 3, 3]``, needed for any word but ""; field: ``[time, parity, site, 3,
    column]``, the slices first, first + 1, ... of the lattice, of the links' dtype. Raises InputError.
    """
    for number, (mu, step) in enumerate(reversed(steps_of(word))):
        out = scratch[number % 2]
        if links is None:
            raise InputError(f"displacements {word!r} need the gauge links")
        field = slice_products.slice_shift(links, field, out, lattice, mu, step, first)
    return field
