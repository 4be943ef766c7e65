"""The stage of smeared links: what it hands on for each kind, and weights that are not the kind's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pipeline import At
from stages.ensemble.configuration import GaugeLinks
from stages.ensemble.smeared_links import smeared_links
from stages.errors import InputError
from stages.lqcd.gauge.ape import ape_links
from stages.lqcd.gauge.hyp import hyp_links
from stages.lqcd.gauge.reunitarise import polar_su3, to_su3
from stages.lqcd.gauge.stout import stout_links
from stages.lqcd.lattice.geometry import Lattice, T
from stages.lqcd.lattice.plaquette import plaquette

AT = {"config": "smooth.3"}
LATTICE = Lattice((4, 4, 4, 2))
SPACE = (0, 1, 2)


@pytest.fixture(scope="module")
def gauge() -> GaugeLinks:
    """Rough links in single precision, as many files are."""
    rng, shape = np.random.default_rng(2211), (4, 2, LATTICE.half_volume, 3, 3)
    links = polar_su3(rng.normal(size=shape) + 1j * rng.normal(size=shape) + 2 * np.eye(3))
    return GaugeLinks(links.astype(np.complex64), np.array(LATTICE.extents))


@pytest.mark.parametrize(
    ("parameters", "function", "weight"),
    [
        ({"kind": "stout", "rho": 0.1, "steps": 3}, stout_links, 0.1),
        ({"kind": "ape", "alpha": 0.5, "steps": 2}, ape_links, 0.5),
        ({"kind": "hyp", "alpha": [0.6, 0.3], "steps": 1}, hyp_links, [0.6, 0.3]),
    ],
    ids=["stout", "ape", "hyp"],
)
def test_smeared_in_space_and_reunitarised(
    gauge: GaugeLinks, parameters: dict[str, Any], function: Any, weight: Any
) -> None:
    at = At(**AT)
    made = smeared_links(gauge, at=at, **parameters)
    thin = to_su3(gauge.links.astype(complex)).links
    assert made.lattice == LATTICE and made.links.dtype == np.complex128
    assert 1e-9 < at.statistics["reunitarisation_deviation"] < 1e-6
    np.testing.assert_array_equal(made.links, function(thin, LATTICE, weight, parameters["steps"], SPACE))
    np.testing.assert_array_equal(made.links[T], thin[T])
    assert plaquette(made.links, LATTICE).spatial > plaquette(thin, LATTICE).spatial + 0.1


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"kind": "hex", "rho": 0.1}, "one of stout, ape, hyp, got 'hex'"),
        ({"kind": "stout", "alpha": 0.1}, "stout smearing takes rho and nothing else, got alpha"),
        ({"kind": "ape"}, "ape smearing takes alpha and nothing else, got nothing"),
        ({"kind": "hyp", "rho": 0.1, "alpha": [0.6, 0.3]}, "nothing else, got rho, alpha"),
        ({"kind": "hyp", "alpha": 0.6}, r"alpha of hyp smearing is two numbers, \[alpha2, alpha3\], got 0.6"),
        ({"kind": "ape", "alpha": [0.6]}, r"alpha of ape smearing is one number, got \[0.6\]"),
        ({"kind": "ape", "alpha": "0.6"}, "alpha of ape smearing is one number, got 0.6"),
        ({"kind": "hyp", "alpha": "ab"}, "two numbers, .* got ab"),
        ({"kind": "hyp", "alpha": [0.75, 0.6, 0.3]}, "3 directions is 2 shares"),
    ],
)
def test_weights_that_are_not_the_kinds(gauge: GaugeLinks, parameters: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        smeared_links(gauge, at=At(**AT), steps=1, **parameters)
