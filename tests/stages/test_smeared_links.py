"""The stage of smeared links: what it hands on for each kind, and weights that are not the kind's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pipeline import At
from stages.base.errors import InputError
from stages.ensemble.configuration import GaugeLinks
from stages.ensemble.smeared_links import smeared_links
from stages.lqcd.gauge.ape import ape_links
from stages.lqcd.gauge.hyp import hyp_links
from stages.lqcd.gauge.reunitarise import polar_su3, to_su3
from stages.lqcd.gauge.stout import stout_links
from stages.lqcd.lattice.geometry import Lattice, T
from stages.lqcd.lattice.plaquette import plaquette
from stages.lqcd.spectroscopy.quark_sources import SourcePlace
from stages.mesons.sources import smeared_sources

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
def test_smeared_in_space_and_reunitarised(gauge, parameters, function, weight):
    at = At(**AT)
    made = smeared_links(gauge, at=at, **parameters)
    thin = to_su3(gauge.links.astype(complex)).links
    assert made.lattice == LATTICE and made.links.dtype == np.complex128
    assert 1e-9 < at.statistics["reunitarisation_deviation"] < 1e-6
    np.testing.assert_array_equal(made.links, function(thin, LATTICE, weight, parameters["steps"], SPACE))
    np.testing.assert_array_equal(made.links[T], thin[T])
    assert plaquette(made.links, LATTICE).spatial > plaquette(thin, LATTICE).spatial + 0.1


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_given_links_stay_as_they_are(gauge: GaugeLinks, dtype: Any) -> None:
    """Those in double precision are projected as they lie, without a copy."""
    given = gauge.links.astype(dtype)
    kept = given.copy()
    made = smeared_links(
        GaugeLinks(given, np.array(LATTICE.extents)), at=At(**AT), kind="ape", steps=0, alpha=0.5
    )
    assert not np.may_share_memory(made.links, given)
    np.testing.assert_array_equal(given, kept)
    np.testing.assert_array_equal(made.links, to_su3(kept.astype(complex)).links)


def transported(links: NDArray, field: NDArray, axis: int, step: int) -> NDArray:
    """U_j(x) f(x + j) or U_j(x - j)^dag f(x - j) of fields ``[t, z, y, x, 3, column]``."""
    if step > 0:
        return links @ np.roll(field, -1, axis)
    return np.roll(links.conj().swapaxes(-1, -2) @ field, 1, axis)


def test_sources_on_smeared_links(gauge: GaugeLinks) -> None:
    """Against NumPy on the whole lattice: APE links of staples, then steps of the Laplacian on them."""
    thin = [lexicographic(links) for links in to_su3(gauge.links.astype(complex)).links[:3]]
    axes, place = (3, 2, 1), SourcePlace(1, (2, 0, 1))
    ape = []
    for mu in SPACE:
        staples = np.zeros_like(thin[mu])
        for nu in SPACE:
            if nu != mu:
                up, down = thin[nu], np.roll(thin[nu], 1, axes[nu])
                staples += up @ np.roll(thin[mu], -1, axes[nu]) @ dagger(np.roll(up, -1, axes[mu]))
                low = np.roll(thin[mu], 1, axes[nu])
                staples += dagger(down) @ low @ np.roll(down, -1, axes[mu])
        ape.append(polar_su3(0.4 * thin[mu] + 0.6 / 4 * staples))
    x, y, z, t = LATTICE.extents
    field = np.zeros((t, z, y, x, 3, 3), complex)
    field[1, 1, 0, 2] = np.eye(3)
    for _ in range(3):
        hops = sum(transported(ape[mu], field, axes[mu], step) for mu in SPACE for step in (1, -1))
        field = field + 1.2**2 / 12 * (hops - 6 * field)
    at = At(**AT, source=place.label)
    smeared = smeared_links(gauge, at=at, kind="ape", alpha=0.6, steps=1)
    made = smeared_sources(gauge, smeared, at=at, width=1.2, steps=3)
    columns = lexicographic(made.fields[..., 0, :]).reshape(t, z, y, x, 4, 3, 4, 3)
    expected = np.einsum("tzyxab,sr->tzyxsarb", field, np.eye(4))
    np.testing.assert_allclose(columns, expected, atol=1e-13)
    on_thin = smeared_sources(gauge, at=at, width=1.2, steps=3)
    assert np.abs(on_thin.fields - made.fields).max() > 0.01


def lexicographic(field: NDArray) -> NDArray:
    """A field ``[parity, site, ...]`` as ``[t, z, y, x, ...]``."""
    out = np.empty((LATTICE.volume, *field.shape[2:]), field.dtype)
    for parity in range(2):
        out[LATTICE.lexicographic(parity)] = field[parity]
    return out.reshape(*LATTICE.extents[::-1], *field.shape[2:])


def dagger(links: NDArray) -> NDArray:
    return links.conj().swapaxes(-1, -2)


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
