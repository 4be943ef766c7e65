"""Numbers of right-hand sides: the CPU compiles each for a second or two, and a quick run has a few."""

from collections.abc import Sequence
from typing import Any

import pytest

in_single = pytest.mark.parametrize(
    "dtype", ["complex64", pytest.param("complex128", marks=pytest.mark.slow)], indirect=True
)
"""For tests of what does not depend on the precision, which compile kernels of their own."""


def widths(quick: Sequence[Any], slow: Sequence[Any]) -> list[Any]:
    """Values of one parameter, or tuples for several, those of `slow` for the full run alone."""
    values = [value if isinstance(value, tuple) else (value,) for value in slow]
    return [*quick, *(pytest.param(*value, marks=pytest.mark.slow) for value in values)]
