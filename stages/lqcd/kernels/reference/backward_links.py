"""Expressions of NumPy, as on a CPU."""

from __future__ import annotations

from stages.lqcd.kernels.cpu.backward_links import add_backward as add_backward
