"""A tiny file of the workflow `g2_hvp`, and stages with correlators that take no solves."""

from __future__ import annotations

from functools import partial
from typing import Annotated, NamedTuple

import numpy as np
import pytest

from pipeline import At, Dims, Node, Place, stage
from stages.connected.walls import WallCorrelators
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
  noise: {kind: z2, seed: 55, vectors: 4, chunk: 4, dilution: {displacement: 2}}
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


@stage(version="1", over=("config", "source"))
def drawn_walls(*, at: At, seed: int, scales: tuple[float, ...]) -> WallCorrelators:
    """Walls around the same, each with noise of 0.7 per cent, in all directions alike."""
    config, sources = str(at.one("config")).encode(), list(map(int, at["source"]))
    mean = drawn_correlator(at=at, seed=seed, scales=scales).correlator
    noise = [np.random.default_rng([seed, 1, n, *config]).normal(size=mean.shape) for n in sources]
    values = np.repeat(mean * (1 + 0.007 * np.array(noise)), 3, axis=1) + 0j
    return WallCorrelators(values, 0 * values, np.array(sources), *3 * (np.zeros((len(sources), 1)),))


def without_solves(patch: pytest.MonkeyPatch) -> None:
    """Walls, and C(t) of loops, are drawn."""

    def walls(own: ConnectedWorkflow, quark: str, end: str, tolerance: float, number: int) -> Node:
        over = {"config": own.ensemble.labels, **own.within, "source": range(number)}
        seed = list(own.parameters.quarks).index(quark)
        stage = partial(drawn_walls, seed=seed, scales=(3 / (1 + seed), 2.43 / (1 + seed)))
        return own.workflow.add(stage, place=Place(f"walls_{quark}{end}", over, {"source": number}))

    def disconnected(own: G2Workflow) -> tuple[list[Node], Node]:
        over = {"config": own.ensemble.labels, **own.within}
        stage = partial(drawn_correlator, seed=7, scales=(1.0, 1.0, -0.02))
        return [], own.workflow.add(stage, place=Place("correlator", over))

    patch.setattr("workflows.g2_hvp.build.LEAST_VECTORS", 5)  # noise of drawn loops is not known
    patch.setattr(ConnectedWorkflow, "walls", walls)
    patch.setattr(G2Workflow, "correlators", disconnected)
