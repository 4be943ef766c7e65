"""A tiny file of the workflow `mesons`."""

from __future__ import annotations

MESONS = """\
workflow: mesons
ensemble:
  heatbath: {extents: [4, 4, 4, 4], beta: 6.0, configurations: 2, sweeps: 3, overrelaxation: 1, seed: 977}
quark: {kappa: 0.11, csw: 1.2, boundary: antiperiodic}
sources: {kind: point, times: [0, 2]}
solves: {solver: cgnr, tolerance: 1.0e-6}
mesons: {momenta: [[0, 0, 0], [1, 0, 0]]}
store: store
report: report
"""
