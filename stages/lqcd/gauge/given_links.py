"""Fat and long links that another code made, as links of an operator; their signs recognised or stated."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stages.base.errors import InputError
from stages.lqcd.gauge.fat_links import long_links
from stages.lqcd.gauge.hisq import StaggeredLinks
from stages.lqcd.gauge.origin import Origin
from stages.lqcd.gauge.phases import parse_boundary, with_boundary, with_phases
from stages.lqcd.kernels.operands import check_array
from stages.lqcd.kernels.transfer import to_backend
from stages.lqcd.lattice.geometry import DIRECTIONS, EVEN, ODD, Lattice, T

CLEAR = 0.5
"""Least mean of signs +-1 that decides: of smeared links over thin ones it is near 1 or -1."""


def given_links(
    fat: NDArray,
    long: NDArray,
    thin: NDArray,
    lattice: Lattice,
    *,
    boundary: str | tuple[str, ...] | None = None,
    phases: bool | None = None,
    backend: str = "cpu",
) -> StaggeredLinks:
    """Links of files, ``[mu, parity, site, 3, 3]`` on the host; Naik epsilon and all factors are in them.

    thin: the configuration that they were made of, without signs. boundary (`parse_boundary`) and phases
    (MILC's eta_mu): those that are in fat and long; where not given, they are recognised by the signs of Re
    tr fat_mu(x) thin_mu(x)^dag. Phases that are not in the links are multiplied in. Raises InputError for
    signs that cannot be recognised, or are not those stated, and where fat and long do not belong together.
    backend: where the result is wanted, 'cpu' or 'cuda'.
    """
    shape = (4, 2, lattice.half_volume, 3, 3)
    fat, long, thin = (np.ascontiguousarray(each, complex) for each in (fat, long, thin))
    for name, links in (("fat links", fat), ("long links", long), ("thin links", thin)):
        check_array(name, links, shape, links.dtype)
    signs, eta = _signs(fat, thin), with_phases(np.ones(shape, complex), lattice)[..., 0, 0].real
    sites = np.stack([lattice.coordinates(parity) for parity in (EVEN, ODD)])
    last = np.moveaxis(sites == np.array(lattice.extents) - 1, -1, 0)  # links that leave the last slice
    inner = [(signs[mu][~last[mu]], eta[mu][~last[mu]]) for mu in range(T)]
    without, with_eta = (np.mean([np.mean(s * e**n) for s, e in inner]) for n in (0, 1))
    seen = None if max(without, with_eta) < CLEAR else bool(with_eta > without)
    phased = _agreed("phases", seen, phases)
    if phased:
        signs = signs * eta
    means = [signs[mu][last[mu]].mean() for mu in range(4)]
    words = [("antiperiodic" if mean < 0 else "periodic") if abs(mean) > CLEAR else None for mean in means]
    stated: Any = (None,) * 4 if boundary is None else parse_boundary(boundary)
    found: Any = tuple(map(_agreed, (f"boundary in {axis}" for axis in DIRECTIONS), words, stated))
    expected = long_links(with_boundary(thin, lattice, found), lattice, -1.0)
    if not phased:
        fat, long = (with_phases(each, lattice) for each in (fat, long))
    if (mean := _signs(long, with_phases(expected, lattice)).mean()) < CLEAR:
        raise InputError(
            f"the long links do not have the signs of the fat ones (mean agreement {mean:.2f}): give both of "
            "one operator, with the same phases and boundary, long ones with their factor -(1 + epsilon) / 24"
        )
    fat, long = (to_backend(each, backend) for each in (fat, long))
    return StaggeredLinks(fat, long, Origin(thin, backend), lattice, found, 0.0)


def _agreed(name: str, seen: Any, stated: Any) -> Any:
    """What is stated, or seen where nothing is. Raises InputError where they differ or neither is there."""
    if seen is None and stated is None:
        raise InputError(f"the {name} of the fat links cannot be recognised by these thin links: state it")
    if None not in (seen, stated) and seen != stated:
        raise InputError(f"the {name} of the fat links is {seen}, and {stated} was stated: correct it")
    return seen if stated is None else stated


def _signs(links: NDArray, others: NDArray) -> NDArray[np.float64]:
    """Sign of Re tr (link other^dag), ``[mu, parity, site]``."""
    return np.sign((links * others.conj()).sum(axis=(-2, -1)).real)
