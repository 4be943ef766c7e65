"""Gram matrices by the library's matrix products; coordinates are few, and the host's."""

from stages.lqcd.kernels.cpu.powers import conjugate_gradients as conjugate_gradients
from stages.lqcd.kernels.expressions import gram as gram
from stages.lqcd.kernels.expressions import magnitudes as magnitudes
