"""The library in a notebook, `import quarkline`, and the command `quarkline`.

A name is loaded when it is first asked for. The packages have names that others have, too: where Python finds
one of those first, a sentence says so.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipeline.reading.result import open_result
    from stages.base.errors import InputError
    from stages.lqcd.analysis.a_mu import VectorCorrelator, a_mu
    from stages.lqcd.analysis.blinding import Blinding
    from stages.lqcd.analysis.bounding import Tail
    from stages.lqcd.analysis.common_resampling import Resampling
    from stages.lqcd.analysis.disconnected import disconnected_correlator
    from stages.lqcd.analysis.effective_mass import effective_mass
    from stages.lqcd.analysis.gevp import spectrum
    from stages.lqcd.analysis.hvp_sum import HvpSum
    from stages.lqcd.analysis.jackknife import (
        bin_means,
        bootstrap_error,
        bootstrap_samples,
        jackknife_covariance,
        jackknife_error,
        jackknife_samples,
    )
    from stages.lqcd.analysis.milc_ensembles import milc_ensemble
    from stages.lqcd.analysis.scale import Measured, Scale
    from stages.lqcd.distillation.eigenvectors import LaplaceSolver
    from stages.lqcd.gauge.heatbath import thermalised
    from stages.lqcd.gauge.stout import stout_links
    from stages.lqcd.kernels.transfer import copy_to_host, to_device
    from stages.lqcd.lattice.formats import check_gauge, read_gauge
    from stages.lqcd.lattice.geometry import Lattice
    from stages.lqcd.lattice.plaquette import plaquette
    from stages.lqcd.noise.dilution import Dilution
    from stages.lqcd.noise.vectors import noise_vectors
    from stages.lqcd.notebook import (
        LowModes,
        Operator,
        Solver,
        Staggered,
        asqtad,
        bicgstab,
        block_cg,
        cg,
        hisq,
        lowest,
        multigrid,
        wilson_clover,
    )
    from stages.lqcd.solvers.solution import NotConverged, Solution, SolveStatus
    from stages.lqcd.spectroscopy.connected import random_wall, rest_correlator
    from stages.lqcd.spectroscopy.meson_fields import meson_fields
    from stages.lqcd.spectroscopy.mesons import meson_correlators
    from stages.lqcd.spectroscopy.quark_sources import SourcePlace, point_source, wall_source, z2_wall_source
    from stages.lqcd.spectroscopy.staggered_mesons import staggered_correlator, staggered_source
    from stages.lqcd.spectroscopy.tmlqcd_files import SlaphFiles, read_tmlqcd, write_tmlqcd
    from stages.lqcd.spectroscopy.vector_currents import vector_current

PACKAGES = ("pipeline", "stages", "workflows")


def stranger() -> str:
    """A sentence on the first of the packages that is not the one beside this module; '' if there is none."""
    here = Path(__file__).resolve().parent
    for name in PACKAGES:
        spec = find_spec(name)
        origin = Path(spec.origin).resolve() if spec and spec.origin else None
        if origin != here / name / "__init__.py":
            folders = spec and spec.submodule_search_locations  # of one without __init__.py
            there = origin or ", ".join(folders or ()) or "none"
            return (
                f"quarkline's package `{name}` is in {here}, but Python finds {there} under that name: "
                "install quarkline into an environment of its own, or take that folder off PYTHONPATH"
            )
    return ""


@cache
def _front_door() -> tuple[list[str], Callable[[str], Any]]:
    if fault := stranger():
        raise ImportError(fault)
    return import_module("stages.base.front_door").front_door("quarkline", __file__)


def __getattr__(name: str) -> Any:
    if name.startswith("__") and name != "__all__":
        raise AttributeError(f"module 'quarkline' has no attribute {name!r}")
    names, load = _front_door()
    return names if name == "__all__" else load(name)


def __dir__() -> list[str]:
    return _front_door()[0]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command line; returns its exit code."""
    if fault := stranger():
        print(f"error: {fault}", file=sys.stderr)
        return 2
    guarded = import_module("workflows.machine_faults").guarded
    return int(guarded(lambda: import_module("workflows.command").main(arguments)))


if __name__ == "__main__":
    sys.exit(main())
