"""A tiny file of the workflow `g2_hvp`, and stages with correlators that take no solves."""

from __future__ import annotations

from functools import partial
from typing import Annotated, NamedTuple

import numpy as np
import pytest

from pipeline import At, Dims, Node, Place, stage
from workflows.g2_connected.build import ConnectedWorkflow
from workflows.g2_disconnected.build import G2Workflow

HVP = """\
workflow: g2_hvp
ensemble:
  heatbath: {extents: [4, 4, 4, 8], beta: 6.0, configurations: 4, sweeps: 3, overrelaxation: 1, seed: 977}
links: {boundary: antiperiodic}
quarks: {light: {mass: 0.2}, strange: {mass: 0.3}}
connected:
  currents: [one_link, conserved]
  noise: {seed: 55, walls: 2}
  solves: {block: 12, sloppy: {tolerance: 1.0e-8}}
disconnected:
  noise: {kind: z2, seed: 55, vectors: 2, chunk: 2, dilution: {displacement: 2}}
  solves: {solver: block_cgrq, precision: double-single, sloppy: {tolerance: 1.0e-8}}
analysis:
  scale: {a_fm: 0.2, error: 0.001}
  windows: [total, SD]
  z_v: {one_link: {at: 3}}
  tail: {energy: 0.6, steps: 1, strange_energy: 0.8, slice: 2, disconnected_slice: 2}
  corrections: {finite volume: {value: 15.0, error: 4.0}}
store: store
report: report
"""


class Drawn(NamedTuple):
    """Correlators that look like measured ones."""

    correlator: Annotated[np.ndarray, Dims("current", "time")]
    error: Annotated[np.ndarray, Dims("current", "time")]


@stage(version="1", over=("config",))
def drawn_correlator(*, at: At, seed: int, scales: tuple[float, ...]) -> Drawn:
    """A state of energy 0.7 on 8 slices, scaled, with noise of a per cent."""
    t = np.arange(8)
    noise = np.random.default_rng([seed, *str(at.one("config")).encode()]).normal(size=(len(scales), 8))
    shape = np.exp(-0.7 * t) + np.exp(-0.7 * (8 - t))
    return Drawn(np.outer(scales, shape) * (1 + 0.01 * noise), 0.005 * np.outer(scales, shape))


def without_solves(patch: pytest.MonkeyPatch) -> None:
    """Correlators are drawn."""

    def connected(own: ConnectedWorkflow) -> list[Node]:
        over = {"config": own.ensemble.labels, **own.within}
        return [
            own.workflow.add(
                partial(drawn_correlator, seed=number, scales=(3 / (1 + number), 2.43 / (1 + number))),
                place=Place(f"correlator_{quark}", over),
            )
            for number, quark in enumerate(own.parameters.quarks)
        ]

    def disconnected(own: G2Workflow) -> tuple[list[Node], Node]:
        over = {"config": own.ensemble.labels, **own.within}
        stage = partial(drawn_correlator, seed=7, scales=(1.0, 1.0, -0.02))
        return [], own.workflow.add(stage, place=Place("correlator", over))

    patch.setattr(ConnectedWorkflow, "correlators", connected)
    patch.setattr(G2Workflow, "correlators", disconnected)
