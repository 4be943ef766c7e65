"""The stages that name the columns of distillation's sources."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pipeline import At
from stages.base.errors import InputError
from stages.distillation.perambulator import full_columns, stochastic_columns
from stages.lqcd.distillation.laph_noise import laph_noise
from support.source_columns import beginning, coefficients

SPACE: dict[str, Any] = {"time_extent": 8, "eigenvectors": 6}
NOISE: dict[str, Any] = {
    "kind": "z4",
    "seed": 4711,
    "dilution": {"time": "full", "eigenvector": "interlace-3"},
}


def test_full_distillation_at_the_times_named() -> None:
    columns = full_columns(at=At(config="c.1", source=("t6", "t2")), **SPACE)
    assert [beginning(columns, number) for number in (0, 47)] == [(6, 0, 0), (2, 3, 5)]


def test_noise_at_the_sources_named_in_any_chunk() -> None:
    columns = stochastic_columns(at=At(config="c.1", source=("t6n0", "t6n3")), **SPACE, **NOISE)
    assert len(columns) == 2 * 3 and beginning(columns, 5) == (6, 0, 2)
    rho = coefficients(columns, range(3, 6)).sum(axis=-1)
    np.testing.assert_array_equal(rho[6], laph_noise("c.1", 4711, 3, [6], 6, "z4")[0])
    other = stochastic_columns(at=At(config="c.2", source="t6n3"), **SPACE, **NOISE)
    assert not np.array_equal(coefficients(other, range(3)).sum(axis=-1), rho)
    together = stochastic_columns(at=At(config="c.1", source=("t6n0", "t1n3")), **SPACE, **NOISE)
    alone = stochastic_columns(at=At(config="c.1", source="t1n3"), **SPACE, **NOISE)
    np.testing.assert_array_equal(coefficients(together, range(3, 6)), coefficients(alone, range(3)))
    with pytest.raises(InputError, match="interlace-4 does not divide the 6 eigenvectors"):
        dilution = {"dilution": {"eigenvector": "interlace-4"}}
        stochastic_columns(at=At(config="c.1", source="t0n0"), **SPACE, **NOISE | dilution)


@pytest.mark.parametrize("label", ["t6", "x0y0z0t6", "x0y0z0t6n1", "6"])
def test_noise_needs_a_number(label: str) -> None:
    with pytest.raises(InputError, match="a source is named like"):
        stochastic_columns(at=At(config="c.1", source=label), **SPACE, **NOISE)


@pytest.mark.parametrize(
    ("label", "said"), [("t6n0", "'t8', of full distillation, got 't6n0'"), ("t8", "t = 8 is")]
)
def test_sources_that_full_distillation_has_not(label: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        full_columns(at=At(config="c.1", source=label), **SPACE)
