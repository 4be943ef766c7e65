"""Fits of exponentials with oscillating partners, by corrfitter and lsqfit where they are installed."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from stages.base.errors import InputError, check_whole
from stages.lqcd.analysis.common_resampling import Resampling
from stages.lqcd.analysis.hvp_kernel import Array
from stages.lqcd.analysis.hvp_sum import fold


class FittedTail(NamedTuple):
    """A correlator continued by a fit, ``[1 + sample, N]``, its energies ``[1 + sample, state]``, quality."""

    correlator: Array
    energies: Array
    quality: str


@dataclass(frozen=True)
class ExponentialFit:
    """C(t) = sum a^2 f(E, t) - (-1)^t sum b^2 f(E', t), f = exp(-E t) + exp(-E (N - t)), t = first ... last.

    states, partners: numbers of terms of either kind. last: N/2 by default. Priors are wide: logarithms of
    amplitudes and energy differences, around the data's own scale.
    Raises InputError for numbers that are none.
    """

    first: int
    last: int | None = None
    states: int = 2
    partners: int = 1

    def __post_init__(self) -> None:
        for name, least in (("first", 1), ("states", 1), ("partners", 0)):
            check_whole(name, getattr(self, name), least)
        if self.last is not None:
            check_whole("last", self.last, self.first + 1)

    def continued(self, rows: Array, cut: int, resampling: Resampling) -> FittedTail:
        """Rows of average and samples ``[1 + sample, N]`` with the states' terms beyond slice `cut`.

        Each sample is fitted. Correlations in t are used where samples are more than twice the slices.
        Raises InputError where corrfitter is missing, or the slices are not those of the correlator.
        """
        extent = rows.shape[-1]
        times = np.arange(self.first, (self.last or extent // 2) + 1)
        if times[-1] > extent // 2 or not 1 <= cut <= extent // 2:
            raise InputError(f"fit and tail go to slices {times[-1]} and {cut}, beyond N/2 = {extent // 2}")
        gvar, corrfitter = (_library(name) for name in ("gvar", "corrfitter"))
        folded = fold(rows)[:, times]
        deviation = folded[1:] - folded[1:].mean(axis=0)
        factor = 1.0 if resampling.bootstrap else len(deviation) - 1
        covariance = factor / len(deviation) * deviation.T @ deviation
        if len(deviation) <= 2 * len(times):
            covariance = np.diag(np.diag(covariance))
        scale = abs(folded[0, 0])  # all is in its units, so that priors are those of any normalisation
        names = {"a": ("a", "b"), "b": ("a", "b"), "dE": ("dE", "dF")}
        model = corrfitter.Corr2(
            "C", **{key: pair if self.partners else pair[0] for key, pair in names.items()},
            s=(1.0, -1.0) if self.partners else 1.0, tp=extent, tdata=list(times), tfit=list(times),
        )  # fmt: skip
        fitter = corrfitter.CorrFitter(models=[model])
        start, energies, tails, quality = None, [], [], ""
        for row in folded:
            data = {"C": gvar.gvar(row / scale, covariance / scale**2)}
            fit = fitter.lsqfit(data=data, prior=self._prior(gvar, self.first), p0=start)
            quality = quality or f"chi^2 / degrees of freedom = {fit.chi2 / fit.dof:.2f}"
            start = fit.pmean
            energy = np.cumsum([gvar.mean(each) for each in fit.p["dE"]])
            amplitude = np.array([gvar.mean(each) for each in fit.p["a"]]) ** 2
            n = np.arange(extent)[:, None]
            terms = amplitude * (np.exp(-energy * n) + np.exp(-energy * (extent - n)))
            energies.append(energy)
            tails.append(scale * terms.sum(axis=1))
        n = np.arange(extent)
        beyond = np.minimum(n, extent - n) > cut
        return FittedTail(np.where(beyond, tails, rows), np.array(energies), quality)

    def _prior(self, gvar: Any, first: int) -> Any:
        """Amplitudes of the size of the data at the first slice, energies of half a lattice unit, +-100 %."""
        prior = gvar.BufferDict()
        for count, amplitude, energy in ((self.states, "a", "dE"), (self.partners, "b", "dF")):
            if count:
                prior[f"log({amplitude})"] = gvar.gvar([0.25 * first] * count, [2.0] * count)
                prior[f"log({energy})"] = gvar.gvar([np.log(0.5)] * count, [1.0] * count)
        return prior


def _library(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise InputError(f"the fit needs {name}: pip install corrfitter, or leave `fit` out") from error
