"""A tiny file of the workflow `g2_hvp`."""

from __future__ import annotations

HVP = """\
workflow: g2_hvp
ensemble:
  heatbath: {extents: [4, 4, 4, 8], beta: 6.0, configurations: 4, sweeps: 3, overrelaxation: 1, seed: 977}
links: {boundary: antiperiodic}
quarks: {light: {mass: 0.2}, strange: {mass: 0.4}}
connected:
  currents: [one_link, conserved]
  noise: {seed: 55, walls: 2}
  solves: {sloppy: {tolerance: 1.0e-8}}
disconnected:
  noise: {kind: z2, seed: 55, vectors: 4, chunk: 2, dilution: {displacement: 2}}
  solves: {solver: block_cgrq, precision: double-single, sloppy: {tolerance: 1.0e-8}}
analysis:
  scale: {a_fm: 0.2, error: 0.001}
  windows: [total, SD]
  z_v: {one_link: {value: 0.9, error: 0.01}}
  tail: {energy: 0.6, steps: 1, strange_energy: 0.8}
store: store
report: report
"""
