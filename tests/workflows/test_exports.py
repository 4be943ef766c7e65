"""Exports to other programs, read back by these: spreadsheets' tables, gvar, pyerrors."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np
import pytest
import xarray
from tiny_project import refused

from pipeline import InputError, open_result
from pipeline.reading.hdf5 import write_hdf5
from stages.lqcd.analysis.jackknife import jackknife_covariance, jackknife_error, jackknife_samples
from workflows.exports import write_csv, write_gvar, write_pyerrors

ABOUT = {
    "node": "average",
    "stage": "meson_average",
    "masses": "light 0.1",
    "not_included": {"Z_V": "squared"},
}


@pytest.fixture
def average() -> xarray.Dataset:
    """An average of 7 configurations, two matrices, two momenta, and its samples."""
    data = np.random.default_rng(404).normal(size=(7, 2, 2, 5))
    dims = ("gamma", "momentum", "time")
    samples = jackknife_samples(data)
    arrays = {
        "correlator": (dims, data.mean(axis=0)),
        "correlator_error": (dims, jackknife_error(samples)),
        "correlator_samples": (("sample", *dims), samples),
        "momentum": (("momentum", "direction"), np.array([[0, 0, 0], [1, 0, 0]])),
    }
    coordinates = {
        "gamma": ["Gamma5", "GammaX"],
        "time": range(5),
        "sample": range(7),
        "direction": list("xyz"),
    }
    return xarray.Dataset(arrays, coordinates, ABOUT)


def test_gvar_has_means_and_correlations(average: xarray.Dataset, tmp_path: Path) -> None:
    gvar = pytest.importorskip("gvar", reason="gvar is not installed")
    write_gvar(average, tmp_path / "average.gvar.json")
    found = gvar.load(str(tmp_path / "average.gvar.json"))
    assert found.pop("about") == ABOUT
    assert list(found) == ["Gamma5 0,0,0", "Gamma5 1,0,0", "GammaX 0,0,0", "GammaX 1,0,0"]
    np.testing.assert_allclose(gvar.mean(found["GammaX 1,0,0"]), average.correlator[1, 1])
    np.testing.assert_allclose(gvar.sdev(found["Gamma5 0,0,0"]), average.correlator_error[0, 0])
    with pytest.raises(InputError, match="average has no jackknife samples: export it to hdf5"):
        write_gvar(average.drop_vars("correlator_samples"), tmp_path / "none.gvar.json")
    everything = np.concatenate(list(found.values()))
    expected = jackknife_covariance(average.correlator_samples.values.reshape(7, -1))
    np.testing.assert_allclose(gvar.evalcov(everything), expected, rtol=1e-9, atol=1e-14)


@pytest.mark.filterwarnings("ignore")
def test_pyerrors_has_correlators_with_their_errors(average: xarray.Dataset, tmp_path: Path) -> None:
    pyerrors = pytest.importorskip("pyerrors", reason="pyerrors is not installed")
    write_pyerrors(average, tmp_path / "average.pyerrors.json.gz")
    read = pyerrors.input.json.load_json_dict
    found = read(str(tmp_path / "average.pyerrors.json.gz"), verbose=False)
    assert list(found)[1] == "Gamma5 1,0,0" and found["Gamma5 1,0,0"].T == 5
    for t in range(5):
        (value,) = found["Gamma5 1,0,0"].content[t]
        value.gamma_method(S=0)
        assert value.value == pytest.approx(float(average.correlator[0, 1, t]))
        assert value.dvalue == pytest.approx(float(average.correlator_error[0, 1, t]))
    whole = read(str(tmp_path / "average.pyerrors.json.gz"), verbose=False, full_output=True)
    assert whole["description"] == ABOUT


def test_tables_hold_every_number(average: xarray.Dataset, tmp_path: Path) -> None:
    average["phase"] = ("time", np.exp(1j * np.arange(5)))
    write_csv(average, tmp_path / "average.csv")
    lines = (tmp_path / "average.csv").read_text().splitlines()
    head = [line for line in lines if line.startswith("#")]
    assert '# not_included: {"Z_V": "squared"}' in head and "# masses: light 0.1" in head
    rows = list(csv.DictReader(lines[len(head) :]))
    assert len(rows) == sum(array.size for array in average.data_vars.values())
    picked = [
        row
        for row in rows
        if (row["array"], row["gamma"], row["momentum"]) == ("correlator_samples", "GammaX", "1,0,0")
    ]
    values = {(int(row["sample"]), int(row["time"])): float(row["value"]) for row in picked}
    expected = average.correlator_samples.sel(gamma="GammaX").values[:, 1]
    assert values == {place: expected[place] for place in np.ndindex(expected.shape)}
    (phase,) = (row for row in rows if row["array"] == "phase" and row["time"] == "3")
    assert complex(float(phase["value"]), float(phase["imaginary"])) == average.phase.values[3]


def test_hdf5_has_dimensions_for_xarray(average: xarray.Dataset, tmp_path: Path) -> None:
    pytest.importorskip("h5netcdf", reason="xarray reads HDF5 with h5netcdf or netCDF4")
    write_hdf5(average, tmp_path / "average.h5")
    with xarray.open_dataset(tmp_path / "average.h5", engine="h5netcdf") as found:
        assert found.correlator.dims == ("gamma", "momentum_number", "time")
        np.testing.assert_array_equal(found.momentum, average.momentum)
        np.testing.assert_array_equal(found.correlator.sel(gamma="GammaX"), average.correlator[1])


def test_export_to_other_programs(quarkline, project, monkeypatch):
    answer = quarkline("export", project, "--to", "csv", "--output", "out", "--result", "average")
    assert answer.code == 0 and [each.name for each in Path("out").iterdir()] == ["average.csv"]
    text = Path("out/average.csv").read_text()
    assert "# masses: light 0.1, strange 0.3" in text and "# errors: jackknife" in text
    correlator = open_result(project.parent / "store", "average").correlator
    rows = csv.DictReader(line for line in text.splitlines() if not line.startswith("#"))
    (row,) = (r for r in rows if (r["array"], r["flavour"], r["time"]) == ("correlator", "light", "2"))
    assert float(row["value"]) == float(correlator[0, 2])
    refused(quarkline("export", project, "--to", "csv", "--format", "hdf5"), "--format hdf5 beside --to")
    monkeypatch.setitem(sys.modules, "gvar", None)
    refused(quarkline("export", project, "--to", "gvar"), "export to gvar needs gvar: pip install gvar")
