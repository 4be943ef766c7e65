"""The workflow `toys` for parameter files: any number of cheap chunks, by way of the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import toy_stages as toys

from pipeline import Place, Store
from workflows.shared.definition import Definition
from workflows.shared.sections import WorkflowParameters

FILE = """\
workflow: toys
ensemble:
  heatbath: {{extents: [4, 4, 4, 4], beta: 6.0, sweeps: 1, overrelaxation: 1, seed: 3,
    configurations: {configs}}}
noise: {noise}
store: store
report: report
"""


class ToyParameters(WorkflowParameters):
    """Chunks of one noise vector each, on so many configurations."""

    noise: int


class ToyWorkflow(Definition[ToyParameters]):
    """A chunk for each configuration, one for each of its noise vectors, an average of all."""

    name = "toys"
    title = "Toys"
    results = ("config_mean",)
    report = "toy_workflow"
    schema = ToyParameters

    def build(self) -> None:
        field = self.workflow.add(toys.field, place=Place(over={"config": self.ensemble.labels}))
        place = Place(over={"noise": range(self.parameters.noise)}, chunk={"noise": 1})
        loops = self.workflow.add(toys.loops, field, place=place, mass=0.5)
        self.workflow.add(toys.config_mean, loops)


WORKFLOW = ToyWorkflow


def sections(parameters: ToyParameters, store: Store) -> list[Any]:
    """Nothing beside the engine's sections."""
    return []


def texts(parameters: ToyParameters, store: Store) -> dict[str, str]:
    """No files."""
    return {}


def install(folder: Path) -> None:
    """What installing it leaves behind, for who has the folder in PYTHONPATH."""
    metadata = folder / "toys-1.dist-info"
    metadata.mkdir()
    (metadata / "entry_points.txt").write_text("[quarkline.workflows]\ntoys = toy_workflow\n")
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: toys\nVersion: 1\n")
