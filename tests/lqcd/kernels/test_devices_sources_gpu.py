"""Sources of Wilson quarks on several devices are those of one, and lie on all."""

import numpy as np
import pytest

pytest.importorskip("cupy")

from test_devices_gpu import on_parts
from test_devices_wilson_gpu import LATTICE, Results, assert_alike, gauges, on

from pipeline import At
from stages.ensemble.smeared_links import smeared_links
from stages.lqcd.kernels.cuda.devices.spans import span_of
from stages.mesons import sources

pytestmark = pytest.mark.gpu

__all__ = ["gauges"]

SMEARED = {"width": 1.5, "steps": 4}


@on_parts
@pytest.mark.parametrize(
    ("stage", "place", "options"),
    [
        (sources.point_sources, "x1y2z3t13", {}),
        (sources.wall_sources, "t13", {}),
        (sources.z2_wall_sources, "t13n0", {"seed": 5}),
        (sources.smeared_sources, "x1y2z3t13", SMEARED),
        (sources.file_sources, "mine", {}),
    ],
    ids=["point", "wall", "noise", "smeared", "file"],
)
def test_sources(gauges, stage, place, options, devices, tmp_path):
    at, gauge = At(config="spread.1", source=(place,), backend="cuda"), gauges[LATTICE]
    if stage is sources.file_sources:
        x, y, z, t = LATTICE.extents
        field = np.zeros((t, z, y, x, 4, 3, 12), complex)
        field[13] = np.random.default_rng(7).normal(size=field.shape[1:])
        np.save(tmp_path / "source.npy", field)
        options = {"path": tmp_path / "source.npy"}
    spread = []

    def compute() -> Results:
        given = dict(options)
        if stage is sources.smeared_sources:
            given["smeared_links"] = smeared_links(gauge, at=at, kind="stout", steps=1, rho=0.1)
        fields = stage(gauge, at=at, **given).fields
        spread.append(span_of(fields) is not None)
        return {"fields": fields}

    one, many = on(LATTICE, (0,), compute), on(LATTICE, devices, compute)
    assert_alike(one, many, 1e-14 if stage is sources.smeared_sources else 0.0)
    assert spread == [False, True]
