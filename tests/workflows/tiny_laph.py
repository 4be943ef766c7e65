"""A tiny file of the workflow `laph_mesons`."""

from __future__ import annotations

LAPH = """\
workflow: laph_mesons
ensemble:
  heatbath: {extents: [4, 4, 4, 4], beta: 6.0, configurations: 2, sweeps: 3, overrelaxation: 1, seed: 977}
quark: {kappa: 0.11, boundary: antiperiodic}
smearing: {kind: stout, steps: 2, rho: 0.1}
distillation: {vectors: 4, slices: 2}
sources: {times: [0, 2]}
solves: {solver: cgnr, tolerance: 1.0e-7, block: 16}
operators: {momenta: [[0, 0, 0], [1, 0, 0]], bases: [[[Gamma5]], [[GammaX], [GammaY], [GammaZ]]], t0: 0}
store: store
report: report
"""
