"""Errors and autocorrelation times by the Gamma method, with `pyerrors` where it is installed.

U. Wolff, arXiv:hep-lat/0306017; several parts and gaps: S. Kuberski, F. Joswig, arXiv:2209.14371.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from stages.base.errors import InputError
from stages.lqcd.analysis.common_resampling import configurations


class GammaError(NamedTuple):
    """A mean with its error and integrated autocorrelation time, each with its own error."""

    value: float
    error: float
    error_of_error: float
    tau_int: float
    """In units of the spacing of the configurations, the least one of all streams; 1/2 without correlation."""
    tau_int_error: float


def gamma_error(
    parts: Mapping[str, tuple[ArrayLike, Sequence[str | int]]], window_parameter: float = 2.0
) -> GammaError:
    """The sum of the means of parts, each of one number for every configuration, ``[config]``, and labels.

    Streams are replica of one chain; configurations may be missing, and parts may have different ones.
    window_parameter: S of the automatic window (hep-lat/0306017, eq. 50).
    Raises InputError where `pyerrors` is not installed, and for labels that do not fit.
    """
    try:
        pyerrors: Any = import_module("pyerrors")
    except ImportError as error:
        raise InputError(
            "the Gamma method needs pyerrors: pip install pyerrors, or take the jackknife with bins"
        ) from error
    total: Any = 0.0
    for name, (data, labels) in parts.items():
        values, places = np.asarray(data, float), configurations(labels, name)
        if values.shape != (len(places),):
            raise InputError(f"{name}: {len(places)} labels, but data of shape {list(values.shape)}")
        order = sorted(range(len(places)), key=places.__getitem__)
        streams = sorted({place.stream for place in places})
        chains = [[i for i in order if places[i].stream == stream] for stream in streams]
        total = total + pyerrors.Obs(
            [values[chain] for chain in chains],
            [f"ensemble|{stream}" for stream in streams],
            idl=[[places[i].number for i in chain] for chain in chains],
        )
    if not parts:
        raise InputError("the Gamma method needs at least one part")
    total.gamma_method(S=window_parameter)
    tau, tau_error = total.e_tauint["ensemble"], total.e_dtauint["ensemble"]
    return GammaError(*map(float, (total.value, total.dvalue, total.ddvalue, tau, tau_error)))
