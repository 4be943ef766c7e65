"""Public MILC ensembles with 2+1+1 flavours of HISQ quarks: parameters with their sources."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from ruamel.yaml import YAML, YAMLError

from stages.base.errors import InputError, suggestion
from stages.lqcd.analysis.scale import Scale

NAMES = """
l1648f211b580m013m065m838 l2448f211b580m0064m0640m828 l3248f211b580m00235m0647m831
l2464f211b600m0102m0509m635 l2464f211b600m0102m03054m635 l2464f211b600m00507m0507m628
l3264f211b600m00507m0507m628 l4064f211b600m00507m0507m628 l4864f211b600m00184m0507m628
l3296f211b630m0074m037m440 l4896f211b630m00363m0363m430 l6496f211b630m0012m0363m432
l48144f211b672m0048m024m286 l64144f211b672m0024m024m286 l96192f211b672m0008m022m260
l64192f211b700m00316m0158m188 l144288f211b700m000569m01555m1827 l96288f211b728m00223m01115m1316
"""
"""Extents, beta and sea masses are in the name: L and T, 100 beta, digits of m_l, m_s, m_c behind '0.'."""
SPACINGS = {
    5.80: Scale(0.15293, 0.00040),
    6.00: Scale(0.12224, 0.00029),
    6.30: Scale(0.08785, 0.00024),
    6.72: Scale(0.05662, 0.00017),
    7.00: Scale(0.04259, 0.00010),
    7.28: Scale(0.03215, 0.00032),
}
"""p4s scale in fm: errors of statistics, systematics, f_pi and electromagnetism in quadrature."""
NAIK_EPSILON = {(5.80, 0.838): -0.3582, (6.00, 0.635): -0.2308, (6.30, 0.440): -0.1204}
"""By beta and charm mass."""
SOURCE = "arXiv:1712.09262 (scale: table IX), arXiv:1212.4768 (charm_epsilon: table IV)"


@dataclass(frozen=True)
class Ensemble:
    """extents x, y, z, t; sea masses of M = 2 m + D; scale; Naik's epsilon of charm, None if unknown."""

    name: str
    extents: tuple[int, int, int, int]
    beta: float
    masses: Mapping[str, float]
    scale: Scale
    charm_epsilon: float | None
    source: str


def own_ensembles(path: str | Path | None) -> dict[str, Ensemble]:
    """A group's own ensembles, by name, from a YAML file with the fields of `Ensemble`; none without a path.

    The scale is given as a_fm and error. Raises InputError for a file that cannot be read, or another form.
    """
    if path is None:
        return {}
    try:
        content = YAML(typ="safe").load(Path(path).expanduser().read_text())
        return {
            str(name): Ensemble(
                str(name),
                tuple(map(int, each["extents"])),  # type: ignore[arg-type]
                float(each["beta"]),
                MappingProxyType({str(k): float(m) for k, m in each["masses"].items()}),
                Scale(each["a_fm"], each["error"]),
                each.get("charm_epsilon"),
                str(each.get("source", path)),
            )
            for name, each in content.items()
        }
    except (OSError, YAMLError, AttributeError, KeyError, TypeError, ValueError) as error:
        form = (
            "name: {extents: [48, 48, 48, 64], beta: 6.0, masses: {light: 0.002}, a_fm: 0.12, error: 0.001}"
        )
        why = f"{type(error).__name__}: {' '.join(str(error).split())[:100]}"
        raise InputError(f"{path}: no table of ensembles ({why}); write {form}") from None


def milc_ensemble(name: str, own: Mapping[str, Ensemble] | None = None) -> Ensemble:
    """The ensemble of a name, with or without the letter of a stream, from a group's own table or this one.

    Raises InputError for a name that neither has.
    """
    base = str(name).strip().rstrip("abcdefghijklmnopqrstuvwxyz")
    for key in (name, base):
        if own and key in own:
            return own[key]
    match = re.fullmatch(r"l(\d\d|1\d\d)(\d\d|\d\d\d)f211b(\d{3})m(\d+)m(\d+)m(\d+)", base)
    if base not in NAMES.split() or not match:
        known = [*NAMES.split(), *(own or ())]
        raise InputError(f"no MILC ensemble is named {name!r}{suggestion(base, known)}")
    space, time, beta = int(match[1]), int(match[2]), int(match[3]) / 100
    light, strange, charm = (float(f"0.{digits}") for digits in match.groups()[3:])
    masses = MappingProxyType({"light": light, "strange": strange, "charm": charm})
    epsilon = NAIK_EPSILON.get((beta, charm))
    return Ensemble(base, (space, space, space, time), beta, masses, SPACINGS[beta], epsilon, SOURCE)
