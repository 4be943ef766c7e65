"""A tiny file of the workflow `g2_connected`."""

from __future__ import annotations

CONNECTED = """\
workflow: g2_connected
ensemble:
  heatbath: {extents: [4, 4, 4, 4], beta: 6.0, configurations: 2, sweeps: 3, overrelaxation: 1, seed: 977}
links: {action: hisq, boundary: antiperiodic}
quarks: {light: {mass: 0.1}, charm: {mass: 0.6, naik_epsilon: -0.2}}
currents: [pion, local]
deflation: {vectors: 8, block: 2}
noise: {seed: 55, walls: 4, chunk: 2}
solves:
  block: 12
  sloppy: {tolerance: 1.0e-3}
  fine: {tolerance: 1.0e-10, walls: 4}
store: store
report: report
"""
