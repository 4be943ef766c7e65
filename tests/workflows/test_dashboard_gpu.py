"""Energy, power and memory of a GPU on the dashboard are those of the records."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny_project import TINY, run_to_its_end

from pipeline import Store
from pipeline.reading.dashboard.facts.campaign import Campaign
from pipeline.reading.dashboard.panel import NodeFigures
from workflows.shared.dashboard import DASHBOARD, joules_times_variance

pytestmark = pytest.mark.gpu


def test_figures_of_a_gpu_are_those_of_its_records(tmp_path: Path) -> None:
    larger = TINY.replace("[4, 4, 4, 4]", "[16, 16, 16, 16]")
    (tmp_path / "g2.yaml").write_text(larger)
    store = Store(run_to_its_end(tmp_path, "cuda") / "store")
    campaign = Campaign(store, DASHBOARD.facts)
    for _ in range(40):
        campaign.refresh()
    records = [store.record(stage, key) for stage in store.stages() for key in store.keys(stage)]
    assert campaign.records.read == len(records)
    drawn = [record["joules"] for record in records if record["joules"] is not None]
    nodes = campaign.records.nodes
    assert drawn and sum(node.total("joules") or 0.0 for node in nodes.values()) == pytest.approx(sum(drawn))
    _, watts, energy = campaign.records.power()
    assert energy[-1] == pytest.approx(sum(drawn)) and max(watts) > 0
    loops = nodes["loops_light"]
    assert loops.most("device_bytes") and campaign.planned_bytes("loops_light") and loops.mean("gflops")
    assert joules_times_variance(NodeFigures("loops_light", loops, campaign))
    assert 0 < (loops.mean("of_copy_bandwidth") or 0) < 1
