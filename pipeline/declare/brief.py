"""Short texts of stages' results: notebooks show what arrays are, not their numbers."""

from __future__ import annotations

from typing import Any


def brief(result: Any) -> str:
    """`GaugeLinks(links=complex128 [4, 2, 128, 3, 3], extents=int64 [4])` of a NamedTuple of arrays."""
    fields = (f"{name}={_brief(getattr(result, name))}" for name in result._fields)
    return f"{type(result).__name__}({', '.join(fields)})"


def _brief(value: Any) -> str:
    shape = getattr(value, "shape", None)
    return repr(value) if shape is None else f"{value.dtype} {list(shape)}"
