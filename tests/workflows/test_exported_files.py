"""Exported files on their own, as mailed: they say what they are, to whoever has nothing else."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest
import xarray
from tiny_project import CommandLine

from pipeline import open_result


@pytest.fixture
def mailed(quarkline: CommandLine, project: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the exported files alone."""
    assert quarkline("export", project, "--output", "out").code == 0
    return Path(shutil.copytree(project.parent / "out", tmp_path_factory.mktemp("mailed") / "out"))


def test_files_as_mailed_say_what_they_are(mailed: Path, quarkline: CommandLine, project: Path) -> None:
    """Ensemble, masses, action, operator, sign, factors, units, the kind of errors, in HDF5 and in Zarr."""
    with h5py.File(mailed / "average.h5") as file:
        of_hdf5 = dict(file.attrs)
        assert file["correlator"].attrs["long_name"].startswith("correlator")
        assert file["correlator_error"].attrs["long_name"] == "error of correlator"
    of_zarr = xarray.open_zarr(mailed / "average.zarr", consolidated=False).attrs
    for attributes, not_included in (
        (of_hdf5, json.loads(of_hdf5["not_included"])),
        (of_zarr, of_zarr["not_included"]),
    ):
        assert "quenched, Wilson gauge action, beta = 6" in attributes["ensemble"]
        assert list(attributes["configurations"]) == ["heatbath-0", "heatbath-1"]
        assert attributes["lattice"] == "4x4x4x4 (x, y, z, t)"
        assert attributes["masses"] == "light 0.1, strange 0.3: m of M = 2 m + D"
        assert attributes["action"].startswith("hisq staggered quarks, naik_epsilon = 0.0")
        assert attributes["boundary"] == "antiperiodic in time, periodic in space"
        assert "one-link vector current on thin links" in attributes["operator"]
        assert (
            "MILC's sign" in attributes["sign"] and "sum_t0 J_i(t0 + t) J_i(t0)" in attributes["definition"]
        )
        assert {"charges", "Z_V", "taste", "operator", "volume"} <= set(not_included)
        assert attributes["units"] == "lattice units, a = 1"
        assert attributes["errors"].startswith("jackknife, one standard deviation, over 2 bins of 1 config")
        assert "block_cgrq" in attributes["solver"] and "0.001" in attributes["solver"]
    assert of_zarr["noise"]["kind"] == "z2" and of_zarr["parameters"] == {"jackknife_bin": 1}
    page = (project.parent / "report" / "index.html").read_text()
    text = (project.parent / "report" / "correlator.txt").read_text()
    for part in ("light 0.1, strange 0.3: m of M = 2 m + D", "antiperiodic in time"):
        assert (
            part in page and part in text and part in (project.parent / "report" / "tables.txt").read_text()
        )

    data = open_result(project.parent / "store", "average")
    assert list(data.time.values) == [0, 1, 2, 3] and list(data.sample.values) == [0, 1]
    with h5py.File(mailed / "average.h5") as file:
        array = file["correlator_samples"]
        assert [axis[0].name for axis in array.dims] == ["/sample", "/flavour", "/time"]
        assert list(file["time"]) == [0, 1, 2, 3]

    pytest.importorskip("h5netcdf", reason="xarray reads HDF5 with h5netcdf or netCDF4")
    data = open_result(project.parent / "store", "average").load()
    with xarray.open_dataset(mailed / "average.h5", engine="h5netcdf") as found:
        assert found.sizes == data.sizes
        np.testing.assert_array_equal(found.correlator.sel(flavour="strange"), data.correlator[1])


@pytest.mark.usefixtures("unreported")
def test_files_replace_links_and_not_what_they_point_to(quarkline, project, tmp_path):
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "zarr.json").write_text("precious")
    for name in ("average.zarr", "average.csv", "average.h5", "index.html", "index.html.partial"):
        precious = tmp_path / "precious" / ("zarr.json" if name != "average.zarr" else "")
        (project.parent / "report" / name).unlink(missing_ok=True)
        (project.parent / "report" / name).symlink_to(precious)
    kinds = [option for kind in ("zarr", "csv", "hdf5") for option in ("--to", kind)]
    for _ in range(2):
        assert quarkline("export", project, "--result", "average", *kinds).code == 0
        assert quarkline("report", project).code == 0
    assert [path.name for path in project.parent.joinpath("report").iterdir() if path.is_symlink()] == [
        "index.html.partial"
    ]
    assert xarray.open_zarr(project.parent / "report" / "average.zarr", consolidated=False)
    assert [path.name for path in project.parent.joinpath("report").glob(".*")] == [".made_of.json"]
    assert [path.read_text() for path in (tmp_path / "precious").iterdir()] == ["precious"]
