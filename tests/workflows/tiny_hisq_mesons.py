"""A tiny file of the workflow `hisq_mesons`."""

from __future__ import annotations

HISQ_MESONS = """\
workflow: hisq_mesons
ensemble:
  heatbath: {extents: [4, 4, 4, 4], beta: 6.0, configurations: 2, sweeps: 3, overrelaxation: 1, seed: 977}
quark: {mass: 0.3, boundary: antiperiodic}
sources: {kind: point, times: [0, 3]}
mesons: {operators: [pion5, rhoi, rhois], momenta: [[0, 0, 0], [1, 0, 0]]}
solves: {tolerance: 1.0e-8}
store: store
report: report
"""
