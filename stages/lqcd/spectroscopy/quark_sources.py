"""Sources of quark propagators: point, smeared point, wall, noisy wall, and fields of a user's own.

A source is a block of columns ``[parity, site, 12, column]``, component 3 * spin + colour. Point, wall and
smeared sources have 12 columns, 3 * spin + colour of the source. A noisy wall has 4, one per source spin,
on the same noise, <eta_a(x) eta_b(y)^*> = delta_ab delta_xy, which sums over the source's colours.
"""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from stages.base.errors import InputError, check_whole
from stages.lqcd.kernels import slice_products
from stages.lqcd.kernels.dispatch import Array, to_device_like
from stages.lqcd.kernels.fields import assign, copied, zero_field
from stages.lqcd.kernels.gamma import COLOURS, COMPONENTS, SPINS
from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice
from stages.lqcd.noise import noise_vectors

LABEL = re.compile(r"(?:x(\d+)y(\d+)z(\d+))?t(\d+)(?:n(\d+))?")


@dataclass(frozen=True)
class SourcePlace:
    """Place of a source: its time, the point in space where it has one, the number of its noise vector."""

    time: int
    point: tuple[int, int, int] | None = None
    noise: int | None = None

    @classmethod
    def parse(cls, label: str) -> SourcePlace:
        """The place that `label` names: ``x0y0z0t8``, ``t8`` or ``t8n0``. Raises InputError."""
        match = LABEL.fullmatch(label)
        if not match:
            raise InputError(f"a source is named like 'x0y0z0t8', 't8' or 't8n0', got {label!r}")
        x, y, z, time, noise = (None if part is None else int(part) for part in match.groups())
        point = None if x is None or y is None or z is None else (x, y, z)
        assert time is not None
        return cls(time, point, noise)

    @staticmethod
    def names(label: str) -> bool:
        """True if `label` names a place."""
        return LABEL.fullmatch(label) is not None

    @property
    def label(self) -> str:
        """Name of the place, which `parse` reads."""
        point = "" if self.point is None else "x{}y{}z{}".format(*self.point)
        return f"{point}t{self.time}" + ("" if self.noise is None else f"n{self.noise}")


def point_source(lattice: Lattice, place: SourcePlace, xp: ModuleType = np) -> Array:
    """One at the place in each of the 12 components, complex128 ``[parity, site, 12, 12]``. InputError."""
    check_place(lattice, place)
    if place.point is None:
        raise InputError(f"a point source has a point in space, like 'x0y0z0t8', got {place.label!r}")
    source = _nothing(lattice, COMPONENTS, xp)
    coordinates = np.array((*place.point, place.time))
    source[int(coordinates.sum()) % 2, int(lattice.site(coordinates))] = to_device_like(
        np.eye(COMPONENTS), source
    )
    return source


def wall_source(lattice: Lattice, place: SourcePlace, xp: ModuleType = np) -> Array:
    """One on every site of a time slice, complex128 ``[parity, site, 12, 12]``; for a fixed gauge.

    Raises InputError. Without gauge fixing the parts that are not gauge covariant average to zero
    over configurations, as noise.
    """
    check_place(lattice, place)
    source = _nothing(lattice, COMPONENTS, xp)
    source[:, slice_sites(lattice, place.time)] = to_device_like(np.eye(COMPONENTS), source)
    return source


def z2_wall_source(lattice: Lattice, place: SourcePlace, label: str, seed: int, xp: ModuleType = np) -> Array:
    """Z2 noise on a time slice for each source spin, complex128 ``[parity, site, 12, 4]``.

    The noise is that of (seed, configuration's `label`, number) everywhere on the lattice
    (`stages.lqcd.noise.vectors`), here divided by the square root of the slice's volume: correlators estimate
    the mean over the slice's points of those of point sources. Raises InputError.
    """
    check_place(lattice, place)
    source, sites = _nothing(lattice, SPINS, xp), slice_sites(lattice, place.time)
    amplitude = (2 * lattice.sites_per_slice) ** -0.5
    for parity in (EVEN, ODD):
        noise = noise_vectors(lattice, parity, label, seed, [place.noise or 0], "z2", xp=xp)[sites, :, 0]
        for spin in range(SPINS):
            source[parity, sites, COLOURS * spin : COLOURS * (spin + 1), spin] = amplitude * noise
    return source


def gaussian_smeared(
    source: Array, links: Array, lattice: Lattice, time: int, width: float, steps: int
) -> Array:
    """Gaussian-smeared copy of a source on one time slice.

    By n = `steps` times chi <- chi + width^2 / (4 n) Laplacian chi.

    source: ``[parity, site, 12, column]``, zero on other slices. links: ``[mu, parity, site, 3, 3]`` without
    boundary signs; the Laplacian is sum_{j = x, y, z} [U_j(x) chi(x+j) + U_j(x-j)^dag chi(x-j)] - 6 chi(x).
    The modes of the Laplacian's eigenvalue -l are damped by 1 - width^2 l / (4 n) at each step; with fewer
    than `least_steps` the highest, l = 12, grow instead. Raises InputError.
    """
    if steps < 1 or not width > 0:
        raise InputError(
            f"smearing has a positive width and at least 1 step, got width {width}, {steps} steps"
        )
    factor = width**2 / (4 * steps)
    sites = slice_sites(lattice, time)
    field = source[:, sites]
    for _ in range(steps):
        field = slice_products.laplacian_step(links, field, lattice, time, factor)
    smeared = copied(source)
    assign(smeared[:, sites], field)
    return smeared


def least_steps(width: float) -> float:
    """Least number of steps that damps all modes: |1 - 12 width^2 / (4 n)| <= 1 for n >= 1.5 width^2."""
    return 1.5 * width**2


def read_source(path: Path, lattice: Lattice) -> NDArray[np.complex128]:
    """A source from a NumPy file, ``[parity, site, 12, column]``.

    The file holds complex numbers ``[t, z, y, x, spin, colour]`` or ``[t, z, y, x, spin, colour, column]`` in
    the DeGrand-Rossi basis. Raises InputError.
    """
    x, y, z, t = lattice.extents
    shape = (t, z, y, x, SPINS, COLOURS)
    field = _mapped(path)
    if not np.iscomplexobj(field) or field.shape[:6] != shape or field.ndim > 7 or not field.size:
        raise InputError(
            f"{path} holds {field.dtype} {field.shape}, but a source on {lattice} is complex {shape}, "
            "t z y x spin colour, with a last axis where there are several columns"
        )
    with np.errstate(over="ignore", invalid="ignore"):
        flat = field.reshape(lattice.volume, COMPONENTS, -1).astype(complex)
    if not np.isfinite(flat).all():
        raise InputError(f"{path} holds numbers that are not finite: write the source again")
    return np.stack([flat[lattice.lexicographic(parity)] for parity in (EVEN, ODD)])


def source_columns(path: Path) -> int:
    """Columns of the source in a NumPy file that `read_source` reads, by its header alone.

    Raises InputError.
    """
    shape = _mapped(path).shape
    if len(shape) not in (6, 7) or 0 in shape:
        raise InputError(
            f"{path} holds an array of shape {shape}, but a source has the axes t z y x spin colour, none of "
            "them empty, and a last one where there are several columns: write it by numpy.save"
        )
    return int(shape[6]) if len(shape) == 7 else 1


def _mapped(path: Path) -> NDArray:
    """The one array of a NumPy file, not yet read: a damaged header may claim any size."""
    if path.exists() and not path.is_file():
        raise InputError(f"{path} is no file, but a folder or a pipe: name the NumPy file of a source")
    try:
        with warnings.catch_warnings(action="ignore"):  # Python's parser, of a damaged header
            field = np.load(path, mmap_mode="r", allow_pickle=False)
    except (
        Exception
    ) as error:  # NumPy's parser raises whatever Python's does: TokenError, EOFError, TypeError
        reason = str(error).partition("\n")[0]
        raise InputError(
            f"{path} cannot be read as a NumPy file of a source ({type(error).__name__}: {reason[:200]}): "
            "write it by numpy.save"
        ) from None
    if not isinstance(field, np.ndarray):
        raise InputError(f"{path} holds several NumPy arrays: save the source alone, by numpy.save")
    return field


def first_time(source: NDArray, lattice: Lattice) -> int:
    """The first time slice on which a source is not zero. Raises InputError where it is zero everywhere."""
    slices = source.reshape(2, lattice.time_extent, -1).any(axis=(0, 2))
    if not slices.any():
        raise InputError("a source is zero everywhere, and has no propagator: check how it was made")
    return int(np.argmax(slices))


def slice_sites(lattice: Lattice, time: int) -> slice:
    """The sites of a time slice on one parity."""
    return slice(time * lattice.sites_per_slice, (time + 1) * lattice.sites_per_slice)


def check_place(lattice: Lattice, place: SourcePlace) -> None:
    """Raises InputError for a place that is not on the lattice, and for what is no place."""
    if not isinstance(place, SourcePlace):
        text = place if isinstance(place, str) else "x0y0z0t8"
        raise InputError(f"a place is a SourcePlace, got {place!r}: give SourcePlace.parse({text!r})")
    spatial = place.point or (0, 0, 0)
    for name, value, extent in zip("xyzt", (*spatial, place.time), lattice.extents, strict=True):
        check_whole(f"{name} of a source", value, 0)
        if value >= extent:
            raise InputError(
                f"a source at {name} = {value} is outside the lattice {lattice}: take 0 to {extent - 1}"
            )


def _nothing(lattice: Lattice, columns: int, xp: ModuleType) -> Array:
    return zero_field((2, lattice.half_volume, COMPONENTS, columns), complex, xp)
