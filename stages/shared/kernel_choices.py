"""Launch shapes chosen by measurement, kept with the results of the stage that used them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pipeline import At
from stages.lqcd.kernels.choices import choices_used


@contextmanager
def recorded_choices(at: At) -> Iterator[None]:
    """Records what kernels used in the block, where there is anything: shapes may alter rounding."""
    with choices_used() as choices:
        yield
    if choices:
        at.record(kernel_choices=sorted(choices))
