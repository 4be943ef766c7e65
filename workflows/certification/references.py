"""External reference outputs: numbers of MILC, Chroma and DDalphaAMG for gauge fields that they wrote."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stages.base.errors import InputError
from stages.lqcd.dirac.full_lattice import StaggeredOperator, StaggeredSchur
from stages.lqcd.dirac.staggered import SquaredDslash, StaggeredDslash
from stages.lqcd.dirac.wilson import WilsonDslash, WilsonOperator, mass_of_kappa
from stages.lqcd.dirac.wilson_schur import WilsonSchur
from stages.lqcd.distillation.eigenvectors import LaplaceSolver
from stages.lqcd.eigen.block_lanczos import BlockLanczos
from stages.lqcd.gauge.hisq import StaggeredLinks, asqtad_links, hisq_links
from stages.lqcd.gauge.stout import SPATIAL_DIRECTIONS, stout_links
from stages.lqcd.gauge.wilson_links import Anisotropy, WilsonLinks, wilson_links
from stages.lqcd.kernels.dispatch import Array, as_numpy
from stages.lqcd.lattice.formats import GaugeField, check_gauge, read_field, read_gauge
from stages.lqcd.lattice.geometry import EVEN
from stages.lqcd.solvers.bicgstab import BiCGstab
from stages.lqcd.solvers.block_cgrq import BlockCGrQ
from stages.lqcd.solvers.cg import BatchedCG
from stages.lqcd.solvers.even_odd import EvenOdd
from stages.lqcd.spectroscopy.quark_sources import SourcePlace, gaussian_smeared, point_source
from workflows.certification.check import Check, Device, caught, measured, skipped

VARIABLE = "QUARKLINE_REFERENCE_DATA"


@dataclass(frozen=True)
class Reference:
    """Files of the reference data, a configuration first, and what another code printed of them."""

    files: list[Path]
    values: dict[str, Any]
    device: Device

    @cached_property
    def gauge(self) -> GaugeField:
        return read_gauge(self.files[0])

    @property
    def links(self) -> Array:
        return self.device.array(self.gauge.links)


def reference_folder(chosen: Path | None) -> Path | None:
    """The folder that an option or the environment names, None where neither does.

    Raises:
        InputError: it holds no reference data.
    """
    named = chosen or (Path(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else None)
    if named and not (named / "expected.json").is_file():
        raise InputError(
            f"{named} holds no reference data: it has no expected.json; give their folder by --data"
        )
    return named


def references(device: Device) -> Iterator[Check]:
    """Checks of all entries that are known here; `--full` for those that take longer."""
    if device.data is None:
        reason = f"no folder of reference data: give it by --data, or set {VARIABLE}"
        yield skipped("reference data", "numbers that MILC, Chroma and DDalphaAMG printed", reason)
        return
    for entry in json.loads((device.data / "expected.json").read_text()):
        about = f"{entry['what'][:100]}; {', '.join(entry['files'][:1])}"
        name, kind = f"reference: {entry['id']}", entry["check"]
        if kind not in KINDS:
            yield skipped(name, about, f"quarkline has no check of kind {kind!r}")
        elif kind in LONG and not device.full:
            yield skipped(name, about, "it takes longer: --full")
        else:
            checks: list[Check] = []
            with caught(name, about, checks):
                files = [device.data / file for file in entry["files"]]
                found = KINDS[kind](Reference(files, entry["values"], device))
                checks.append(measured(name, about, found, entry["rtol"]))
            yield from checks


def _milc_plaquette(reference: Reference) -> float:
    plaquette, trace = reference.gauge.plaquette, reference.gauge.statistics.trace
    found = 3 * plaquette.spatial, 3 * plaquette.temporal, trace
    return _relative(found, [reference.values[name] for name in ("ss", "st", "linktr")])


def _plaquette(reference: Reference) -> float:
    report, values = check_gauge(reference.files[0]), reference.values
    if not report.ok:
        return np.inf
    link = _relative(report.link_trace, values["link"]) if "link" in values else 0.0
    return max(_relative(report.plaquette.total, values["w_plaq"]), link)


def _asqtad_links(reference: Reference) -> float:
    links = _asqtad(reference)
    fat, long = (read_field(file).values for file in reference.files[1:3])
    assert links.long is not None
    return max(_norm_of_difference(links.fat, fat), _norm_of_difference(links.long, long))


def _asqtad_solution(reference: Reference) -> float:
    operator = StaggeredOperator(StaggeredDslash(_asqtad(reference)), reference.values["mass"])
    b, x = (read_field(file).values for file in reference.files[1:3])
    solver = EvenOdd(BlockCGrQ(1e-10, precision="double-single"), StaggeredSchur)
    return _norm_of_difference(solver.solve(operator, reference.device.array(b, complex)).x, x)


def _asqtad(reference: Reference) -> StaggeredLinks:
    lattice, u0 = reference.gauge.lattice, reference.values["u0"]
    return asqtad_links(reference.links, lattice, boundary="antiperiodic", u0=u0)


def _hisq(reference: Reference) -> StaggeredDslash:
    lattice, epsilon = reference.gauge.lattice, reference.values["eps"]
    made = hisq_links(reference.links, lattice, boundary="antiperiodic", naik_epsilon=epsilon)
    return StaggeredDslash(made)


def _hisq_eigenvalues(reference: Reference) -> float:
    expected = reference.values["eig"]
    search = BlockLanczos(len(expected), 8, tolerance=1e-10)
    found = search.solve(SquaredDslash(_hisq(reference), EVEN))
    return _relative(np.sort(found.values[: len(expected)]), expected)


def _hisq_pion(reference: Reference) -> float:
    operator = StaggeredOperator(_hisq(reference), reference.values["mass"])
    b = np.zeros((*operator.shape, 3), complex)
    b[EVEN, 0] = np.eye(3)
    x = EvenOdd(BatchedCG(1e-11), StaggeredSchur).solve(operator, reference.device.array(b)).x
    return _relative(_by_time(x, operator.dslash.lattice.time_extent), reference.values["corr"])


def _wilson_dirichlet(reference: Reference) -> float:
    made = wilson_links(reference.links, reference.gauge.lattice, boundary="dirichlet")
    return _propagator(reference, made, reference.values["source_t"], 2.0, 5)


def _clover(reference: Reference) -> float:
    values, lattice = reference.values, reference.gauge.lattice
    smeared = stout_links(reference.links, lattice, values["rho"], values["n"], SPATIAL_DIRECTIONS)
    made = wilson_links(
        smeared,
        lattice,
        boundary="antiperiodic",
        csw=(values["cR"], values["cT"]),
        anisotropy=Anisotropy(values["xi0"], values["nu"]),
    )
    return _propagator(reference, made, 0, values["width"], values["iters"])


def _propagator(reference: Reference, made: WilsonLinks, time: int, width: float, steps: int) -> float:
    """Time-slice norms of the smeared source and of all twelve columns of its propagator."""
    lattice, values = reference.gauge.lattice, reference.values
    M = WilsonOperator(WilsonDslash(made), mass_of_kappa(values["kappa"]))
    point = point_source(lattice, SourcePlace(time, (0, 0, 0)), reference.device.xp)
    source = gaussian_smeared(point, reference.links, lattice, time, width, steps)
    density = _by_time(EvenOdd(BiCGstab(1e-13), WilsonSchur).solve(M, source).x, lattice.time_extent)
    size = float((np.abs(as_numpy(source)) ** 2).sum())
    return max(_relative(density, values["prop_corr"]), _relative(size, values["source_corr"]))


def _laplacian(reference: Reference) -> float:
    lattice, (rho, steps) = reference.gauge.lattice, reference.values["stout"]
    links = reference.device.array(reference.gauge.links, complex)
    smeared = stout_links(links, lattice, rho, int(steps), SPATIAL_DIRECTIONS)
    expected = np.array(reference.values["eig"])
    modes = LaplaceSolver(expected.shape[1]).solve(smeared, lattice, reference.values["t"])
    return _relative(as_numpy(modes.values), expected)


KINDS: dict[str, Callable[[Reference], float]] = {
    "milc_plaq": _milc_plaquette,
    "wplaq": _plaquette,
    "asqtad_links": _asqtad_links,
    "asqtad_minv": _asqtad_solution,
    "hisq_eigs": _hisq_eigenvalues,
    "hisq_pion": _hisq_pion,
    "wilson_dirichlet": _wilson_dirichlet,
    "clover_stout": _clover,
    "laplace": _laplacian,
}
"""Function that gives the relative deviation of each kind of entry."""

LONG = ("hisq_eigs", "hisq_pion")
"""Kinds that the short form leaves out, and says so."""


def _by_time(x: Array, times: int) -> NDArray[np.float64]:
    """Squared norms of fields ``[parity, site, ...]`` on each time slice."""
    return (np.abs(as_numpy(x)) ** 2).reshape(2, times, -1).sum(axis=(0, 2))


def _relative(found: ArrayLike, expected: ArrayLike) -> float:
    """Largest deviation of a number, relative to itself."""
    return float(np.abs(np.asarray(found) / np.asarray(expected) - 1).max())


def _norm_of_difference(found: Array, expected: NDArray) -> float:
    """Norm of a difference relative to the norm."""
    return float(np.linalg.norm(as_numpy(found) - expected) / np.linalg.norm(expected))
