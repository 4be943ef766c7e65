"""16-bit fields: codes with one float scale per site and right-hand side; the arithmetic all packages share.

value = scale (code - 32768), codes 1 to 65535. The scale is the largest real or imaginary part of the site's
components (3 colours, or 4 spins of them) over 32767, rounded up to 15 significant bits, so that decoding
rounds once. Numbers keep an absolute error of half a scale: at most 1.6e-5 of the largest part of their site.
Largest parts from 4e-34 to 3e38 are kept; smaller ones become zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from stages.lqcd.kernels.dispatch import Array, array_module
from stages.lqcd.kernels.operands import check_array
from stages.lqcd.lattice.errors import InputError

CODE_ZERO = 32768
LARGEST_CODE = 32767
SPARE_BITS = np.uint32(0x1FF)
"""Bits of a float's 24 that a scale does without."""


@dataclass(frozen=True)
class HalfField:
    """A field on one parity: codes uint16 ``[site, 3 or 12, N, 2]``, scales float32 ``[site, N]``."""

    codes: Array
    scales: Array

    @property
    def shape(self) -> tuple[int, ...]:
        """``(sites, 3 or 12, N)``."""
        return self.codes.shape[:3]

    @property
    def nbytes(self) -> int:
        return self.codes.nbytes + self.scales.nbytes


def empty(library: Any, sites: int, n: int, components: int = 3) -> HalfField:
    """A field with room for `n` right-hand sides in arrays of `library`, NumPy or CuPy."""
    codes = library.empty((sites, components, n, 2), np.uint16)
    return HalfField(codes, library.empty((sites, n), np.float32))


def scale_for(largest: Array) -> Array:
    """The scale of numbers up to `largest` in absolute value, float32."""
    xp = array_module(largest)
    bits = (largest.astype(np.float32) / np.float32(LARGEST_CODE)).view(np.uint32)
    scale = ((bits + SPARE_BITS) & ~SPARE_BITS).view(np.float32)
    return xp.where(scale < np.finfo(np.float32).tiny, np.float32(0), scale)


def encoded(parts: Array, scale: Array) -> Array:
    """Codes, uint16, of real `parts`; `scale` broadcasts against them."""
    xp = array_module(parts)
    inverse = xp.where(scale > 0, np.float32(1) / xp.where(scale > 0, scale, np.float32(1)), np.float32(0))
    return (xp.rint(parts.astype(np.float32) * inverse) + CODE_ZERO).astype(np.uint16)


def decoded(codes: Array, scale: Array) -> Array:
    """The real numbers, float32, that codes stand for."""
    return (codes.astype(np.float32) - np.float32(CODE_ZERO)) * scale


def halved(field: Array, components: int, out: HalfField | None = None) -> HalfField:
    """complex64 ``[site, components, N]`` in 16 bits; InputError for others."""
    check_array("field", field, (len(field), components, *field.shape[2:]), np.dtype(np.complex64))
    xp = array_module(field)
    parts = field.view(np.float32).reshape(*field.shape, 2)
    scales = scale_for(xp.abs(parts).max(axis=(1, 3)))
    codes = encoded(parts, scales[:, None, :, None])
    if out is None:
        return HalfField(codes, scales)
    check_field("out", out, field.shape)
    out.codes[...], out.scales[...] = codes, scales
    return out


def whole(field: HalfField, out: Array | None = None) -> Array:
    """The complex64 ``[site, components, N]`` that a HalfField holds."""
    check_field("field", field, field.shape)
    xp = array_module(field.codes)
    out = xp.empty(field.shape, np.complex64) if out is None else out
    check_array("out", out, field.shape, np.dtype(np.complex64))
    out[...] = decoded(field.codes, field.scales[:, None, :, None]).view(np.complex64)[..., 0]
    return out


def check_field(name: str, field: Any, shape: tuple[int, ...]) -> None:
    """Raise InputError unless `field` is a HalfField of this shape."""
    if not isinstance(field, HalfField):
        raise InputError(f"{name} must be a HalfField, got {type(field).__name__}: convert it with to_half")
    check_array(f"{name}.codes", field.codes, (*shape, 2), np.dtype(np.uint16))
    check_array(f"{name}.scales", field.scales, (shape[0], shape[2]), np.dtype(np.float32))


def check_half_fields(packed: Any, x: Any, out: Any, diagonal: Array | None, components: int) -> None:
    """Raise InputError unless x is a HalfField, out one without a diagonal or complex64 ``[site, *, N]``."""
    if packed.dtype != np.complex64:
        raise InputError(f"a HalfField needs complex64 links, got {packed.dtype}")
    shape = (packed.lattice.half_volume, components, x.shape[2])
    check_field("x", x, shape)
    if not isinstance(out, HalfField):
        check_array("out", out, shape, np.dtype(np.complex64))
        if diagonal is not None:
            check_array("diagonal", diagonal, shape, np.dtype(np.complex64))
        return
    check_field("out", out, shape)
    if diagonal is not None:
        raise InputError("a dslash into a HalfField takes no diagonal: give a complex64 out")
    if array_module(x.codes).may_share_memory(out.codes, x.codes):
        raise InputError("out of the dslash must not be its input x: give another field")


def check_half_dslash(packed: Any, x: Any, out: Any, diagonal: Array | None, dots: Array | None) -> None:
    """`check_half_fields` for the staggered dslash; dots come with a diagonal."""
    check_half_fields(packed, x, out, diagonal, 3)
    if dots is not None:
        check_array("dots", dots, x.shape[2:], np.dtype(np.float64))
        if diagonal is None:
            raise InputError("dots are Re conj(diagonal) out: give a diagonal")
