"""External reference outputs: numbers of MILC, Chroma and DDalphaAMG for gauge fields that they wrote."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stages.base.errors import InputError
from stages.lqcd.dirac.full_lattice import StaggeredOperator, StaggeredSchur
from stages.lqcd.dirac.staggered import SquaredDslash, StaggeredDslash
from stages.lqcd.dirac.wilson import WilsonDslash, WilsonOperator, mass_of_kappa
from stages.lqcd.dirac.wilson_schur import WilsonSchur
from stages.lqcd.distillation.eigenvectors import LaplaceSolver
from stages.lqcd.eigen.block_lanczos import BlockLanczos
from stages.lqcd.gauge.hisq import asqtad_links, hisq_links
from stages.lqcd.gauge.stout import SPATIAL_DIRECTIONS, stout_links
from stages.lqcd.gauge.wilson_links import Anisotropy, wilson_links
from stages.lqcd.kernels.dispatch import as_numpy
from stages.lqcd.lattice.formats import check_gauge, read_field, read_gauge
from stages.lqcd.lattice.geometry import EVEN
from stages.lqcd.solvers.bicgstab import BiCGstab
from stages.lqcd.solvers.block_cgrq import BlockCGrQ
from stages.lqcd.solvers.cg import BatchedCG
from stages.lqcd.solvers.even_odd import EvenOdd
from stages.lqcd.spectroscopy.quark_sources import SourcePlace, point_source
from stages.lqcd.spectroscopy.smearing import gaussian_smeared
from workflows.certification.check import Check, Device, caught, measured, skipped

VARIABLE = "QUARKLINE_REFERENCE_DATA"
Entry = dict[str, Any]


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


def references(device: Device, folder: Path | None) -> Iterator[Check]:
    """Checks of all entries that are known here; `--full` for those that take longer."""
    if folder is None:
        reason = f"no folder of reference data: give it by --data, or set {VARIABLE}"
        yield skipped("reference data", "numbers that MILC, Chroma and DDalphaAMG printed", reason)
        return
    entries: list[Entry] = json.loads((folder / "expected.json").read_text())
    for entry in entries:
        about = f"{entry['what'][:100]}; {', '.join(entry['files'][:1])}"
        name, kind = f"reference: {entry['id']}", entry["check"]
        if kind not in KINDS:
            yield skipped(name, about, f"quarkline has no check of kind {kind!r}")
        elif kind in LONG and not device.full:
            yield skipped(name, about, "it takes longer: --full")
        else:
            checks: list[Check] = []
            with caught(name, about, checks):
                checks.append(measured(name, about, KINDS[kind](folder, entry, device), entry["rtol"]))
            yield from checks


def _milc_plaquette(folder: Path, entry: Entry, device: Device) -> float:
    field, values = read_gauge(folder / entry["files"][0]), entry["values"]
    found = 3 * field.plaquette.spatial, 3 * field.plaquette.temporal, field.statistics.trace
    return _relative(found, [values[name] for name in ("ss", "st", "linktr")])


def _plaquette(folder: Path, entry: Entry, device: Device) -> float:
    report, values = check_gauge(folder / entry["files"][0]), entry["values"]
    if not report.ok:
        return np.inf
    return max(
        _relative([report.plaquette.total], [values["w_plaq"]]),
        _relative([report.link_trace], [values["link"]]) if "link" in values else 0.0,
    )


def _asqtad_links(folder: Path, entry: Entry, device: Device) -> float:
    links = _asqtad(folder, entry, device)
    fat, long = (read_field(folder / name).values for name in entry["files"][1:3])
    return max(_norm_of_difference(links.fat, fat), _norm_of_difference(links.long, long))


def _asqtad_solution(folder: Path, entry: Entry, device: Device) -> float:
    operator = StaggeredOperator(StaggeredDslash(_asqtad(folder, entry, device)), entry["values"]["mass"])
    b, x = (read_field(folder / name).values.astype(complex) for name in entry["files"][1:3])
    solver = EvenOdd(BlockCGrQ(1e-10, inner="single"), StaggeredSchur)
    return _norm_of_difference(solver.solve(operator, device.xp.asarray(b)).x, x)


def _asqtad(folder: Path, entry: Entry, device: Device) -> Any:
    field = read_gauge(folder / entry["files"][0])
    links = device.xp.asarray(field.links)
    return asqtad_links(links, field.lattice, boundary="antiperiodic", u0=entry["values"]["u0"])


def _hisq(folder: Path, entry: Entry, device: Device) -> StaggeredDslash:
    field, epsilon = read_gauge(folder / entry["files"][0]), entry["values"]["eps"]
    links = device.xp.asarray(field.links)
    made = hisq_links(links, field.lattice, boundary="antiperiodic", naik_epsilon=epsilon)
    return StaggeredDslash(made)


def _hisq_eigenvalues(folder: Path, entry: Entry, device: Device) -> float:
    expected = entry["values"]["eig"]
    search = BlockLanczos(len(expected), 8, tolerance=1e-10)
    found = search.solve(SquaredDslash(_hisq(folder, entry, device), EVEN), device.xp)
    return _relative(np.sort(found.values[: len(expected)]), expected)


def _hisq_pion(folder: Path, entry: Entry, device: Device) -> float:
    operator = StaggeredOperator(_hisq(folder, entry, device), entry["values"]["mass"])
    b = np.zeros((*operator.shape, 3), complex)
    b[EVEN, 0] = np.eye(3)
    x = EvenOdd(BatchedCG(1e-11), StaggeredSchur).solve(operator, device.xp.asarray(b)).x
    times = operator.dslash.lattice.time_extent
    by_time = (abs(as_numpy(x)) ** 2).reshape(2, times, -1).sum(axis=(0, 2))
    return _relative(by_time, entry["values"]["corr"])


def _wilson_dirichlet(folder: Path, entry: Entry, device: Device) -> float:
    gauge = read_gauge(folder / entry["files"][0])
    made = wilson_links(device.xp.asarray(gauge.links), gauge.lattice, boundary="dirichlet")
    return _propagator(gauge, made, entry["values"], entry["values"]["source_t"], 2.0, 5, device)


def _clover(folder: Path, entry: Entry, device: Device) -> float:
    gauge, values = read_gauge(folder / entry["files"][0]), entry["values"]
    links = device.xp.asarray(gauge.links)
    smeared = stout_links(links, gauge.lattice, values["rho"], values["n"], SPATIAL_DIRECTIONS)
    made = wilson_links(
        smeared,
        gauge.lattice,
        boundary="antiperiodic",
        csw=(values["cR"], values["cT"]),
        anisotropy=Anisotropy(values["xi0"], values["nu"]),
    )
    return _propagator(gauge, made, values, 0, values["width"], values["iters"], device)


def _propagator(
    gauge: Any, made: Any, values: dict[str, Any], time: int, width: float, steps: int, device: Device
) -> float:
    """Time-slice norms of the smeared source and of all twelve columns of its propagator."""
    lattice, M = gauge.lattice, WilsonOperator(WilsonDslash(made), mass_of_kappa(values["kappa"]))
    point = point_source(lattice, SourcePlace(time, (0, 0, 0)), device.xp)
    source = gaussian_smeared(point, device.xp.asarray(gauge.links), lattice, time, width, steps)
    x = as_numpy(EvenOdd(BiCGstab(1e-13), WilsonSchur).solve(M, source).x)
    density = (np.abs(x) ** 2).sum(axis=(2, 3)).reshape(2, lattice.time_extent, -1).sum(axis=(0, 2))
    size = float((np.abs(as_numpy(source)) ** 2).sum())
    return max(_relative(density, values["prop_corr"]), _relative([size], [values["source_corr"]]))


def _laplacian(folder: Path, entry: Entry, device: Device) -> float:
    gauge, (rho, steps) = read_gauge(folder / entry["files"][0]), entry["values"]["stout"]
    links = device.xp.asarray(gauge.links.astype(complex))
    smeared = stout_links(links, gauge.lattice, rho, int(steps), SPATIAL_DIRECTIONS)
    expected = np.array(entry["values"]["eig"])
    modes = LaplaceSolver(expected.shape[1]).solve(smeared, gauge.lattice, entry["values"]["t"])
    return _relative(as_numpy(modes.values), expected)


KINDS: dict[str, Callable[[Path, Entry, Device], float]] = {
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


def _relative(found: Any, expected: Any) -> float:
    """Largest deviation of a number, relative to itself."""
    return float(np.abs(np.asarray(found) / np.asarray(expected) - 1).max())


def _norm_of_difference(found: Any, expected: NDArray) -> float:
    """Norm of a difference relative to the norm."""
    return float(np.linalg.norm(as_numpy(found) - expected) / np.linalg.norm(expected))
