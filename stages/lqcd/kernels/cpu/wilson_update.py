"""The terms one after the other: on processors smoothers take powers of the operator instead."""

from __future__ import annotations

from functools import partial

from stages.lqcd.kernels.cpu.wilson_dslash import wilson_dslash
from stages.lqcd.kernels.reference.wilson_update import updated_by

wilson_update = partial(updated_by, wilson_dslash)
