"""The sections `estimator`, `noise.probes` and `alternatives`: nodes, sums, reuse, report, refusals."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from tiny_project import TINY, edit, missing, run_to_its_end

from pipeline import open_result

SECTIONS = (
    "solves:",
    """deflation: {vectors: 8, block: 4}
estimator: {difference: split_even, low_modes: true}
alternatives:
  plain: {deflation: false, difference: plain}
  probed: {dilution: {}, probes: 2}
solves:""",
)
FINE = ("  fine: {tolerance: 1.0e-10, vectors: 2}\n", "")
EXACT = ("store: store", "exact: true\nstore: store")


@pytest.fixture(scope="module")
def estimated(tmp_path_factory: pytest.TempPathFactory, cluster: str) -> Path:
    """A finished run with low modes, split-even difference and two alternatives. Only to be read."""
    folder = tmp_path_factory.mktemp("estimated")
    (folder / "g2.yaml").write_text(TINY)
    fewer = ("tolerance: 1.0e-3", "tolerance: 1.0e-9"), ("configurations: 2", "configurations: 1")
    edit(folder / "g2.yaml", SECTIONS, FINE, EXACT, *fewer)
    return run_to_its_end(folder, cluster)


def test_low_and_high_parts_are_kept_apart_and_the_correlator_has_their_sum(estimated: Path) -> None:
    low, high, both, exact = (
        open_result(estimated / "store", name).load()
        for name in ("low_modes", "loops_split_even", "correlator", "exact_light")
    )
    assert low.current.dims == ("config", "eigenvector", "direction", "time")
    assert high.current.dims == ("config", "noise", "probe", "flavour", "direction", "time")
    weight = 1 / (low.eigenvalue + 4 * 0.1**2)
    part = (low.current * weight).sum("eigenvector")
    mean = high.current.mean(("noise", "probe")).sel(flavour="light") + part
    assert np.allclose(both.loops.sel(flavour="light"), mean.transpose(*exact.current.dims), atol=1e-12)
    pull = (both.loops - exact.current).sel(flavour="light") / both.loops_error.sel(flavour="light")
    assert float((pull**2).mean()) < 4


def test_the_report_compares_the_estimators(estimated: Path) -> None:
    text = (estimated / "report" / "tables.txt").read_text()
    assert "exact low part" in text
    for name in ("as configured", "plain difference of the same solves", "plain", "probed"):
        assert len(re.findall(rf"^ *{name}  ", text, re.MULTILINE)) >= 1, name
    assert "Cost of the same error, light - strange" in text


def test_more_probes_reuse_those_that_are_there(quarkline, estimated, tmp_path):
    file = tmp_path / "g2.yaml"
    file.write_text((estimated / "g2.yaml").read_text().replace("store: store", f"store: {estimated}/store"))
    assert missing(quarkline, file) == {}
    edit(file, ("probes: 2", "probes: 4"))
    assert missing(quarkline, file) == {"probed_loops_split_even": 2 * 2}
