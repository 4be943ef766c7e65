"""Kernel, windows and sums of a_mu against two independent evaluations and published numbers."""

import numpy as np
import pytest
from synthetic_hvp import (
    free_hisq_correlator,
    free_quark_correlator,
    kernel_closed_form,
    periodic,
    reference,
    synthetic,
)

from stages.lqcd.analysis.effective_mass import without_oscillation
from stages.lqcd.analysis.hvp_kernel import (
    HBARC,
    Muon,
    kernel,
    kernel_slope,
    muon_kernel,
)
from stages.lqcd.analysis.hvp_sum import TOTAL, WINDOWS, HvpSum, Window, fold, time_moments
from stages.lqcd.analysis.scale import Measured, Scale
from support.refusals import refuses

MUON = Muon()
ENDS = (("end_half", 0.5), ("end_full", 1))


def integral(window: Window, correlator, step=0.06, low=-25.0, high=12.0, unit=2.0, muon=MUON):
    """The integral of K~(t) Theta(t) G(t), trapezoidal in ln t, from exp(low) to exp(high) over unit, GeV."""
    t = np.exp(np.arange(low, high, step)) / unit
    values = muon_kernel(t * HBARC, muon) * window.at(t * HBARC) * correlator(t) * t
    return values.sum() * step


def a_mu(correlator, a, window="total", middle=0.5):
    return HvpSum(Scale(a, 0.0), WINDOWS[window], middle=middle).value(correlator)


def assert_sums(correlator, a, sums, rtol):
    for window, by_end in sums.items():
        for end, middle in ENDS:
            assert a_mu(correlator, a, window, middle) == pytest.approx(float(by_end[end]), rel=rtol)


@pytest.mark.parametrize("entry", reference()["A kernel"], ids=lambda entry: entry["t_fm"])
def test_kernel_from_its_integral(entry):
    for value, key in (
        (muon_kernel(float(entry["t_fm"])), "K~ GeV^-2"),
        (kernel(float(entry["m_mu t"])), "m^2 K~"),
    ):
        assert value == pytest.approx(float(entry[key]), rel=1e-12)


def test_kernel_at_longer_times():
    """Printed by another evaluation: m_mu^2 K~ at 0.5, 1, 2 fm."""
    expected = [0.00545867031420, 0.0823013107372, 1.134737722827]
    assert muon_kernel([0.5, 1, 2]) * MUON.mass**2 == pytest.approx(expected, rel=2e-12)


def test_kernel_in_two_representations():
    x = np.geomspace(0.75, 100, 200)
    assert np.abs(kernel(x) / kernel_closed_form(x) - 1).max() < 1e-12
    assert kernel([0.0, 1e-6]) == pytest.approx([0, np.pi**2 / 9 * 1e-24], rel=1e-11)


@pytest.mark.parametrize("x", [0.02, 0.3, 2.0, 10.0, 19.9, 40.0])
def test_slope_of_the_kernel(x):
    h = 1e-4 * x
    assert (kernel(x + h) - kernel(x - h)) / (2 * h) == pytest.approx(kernel_slope(x), rel=2e-8)


@pytest.mark.parametrize("entry", reference()["B published checks"][:3], ids=lambda entry: entry["what"])
def test_lepton_loops(entry):
    mass = {"muon": 0.1056583755, "tau": 1.77686, "electron": 0.000510998950}[entry["what"].split()[0]]
    found = integral(TOTAL, lambda t: free_quark_correlator(t, mass), unit=2 * mass)
    assert found == pytest.approx(float(entry["A2 = a/(alpha/pi)^2 dispersive"]), rel=1e-11)
    if mass == MUON.mass:
        assert found == pytest.approx(119 / 36 - np.pi**2 / 3, rel=1e-12)


def test_published_values_with_their_constants():
    """Those of a public code, which works in momentum space, and of its tests, which have other constants."""
    loops = reference()["B published checks"][3:5]
    for entry, mass in zip(loops, (MUON.mass, 0.3), strict=True):
        found = integral(TOTAL, lambda t, m=mass: free_quark_correlator(t, m), unit=2 * mass)
        found *= 1e10 / (np.pi * MUON.inverse_alpha) ** 2
        assert found == pytest.approx(float(entry["a_mu 1e-10 dispersive"]), rel=1e-11)
        published = entry["g2tools (momentum space, public code, same constants) 1e-10"]
        assert found == pytest.approx(float(published), rel=1e-8)
    old = Muon(0.1056583715, 137.035999074)
    alpha = (np.pi * old.inverse_alpha) ** -2
    loop = integral(TOTAL, lambda t: free_quark_correlator(t, old.mass), unit=2 * old.mass, muon=old) * alpha
    assert loop == pytest.approx(8.4641332e-8, rel=5e-9)


@pytest.mark.parametrize("entry", reference()["B published checks"][5:], ids=lambda entry: entry["E"])
def test_integral_of_an_exponential(entry):
    energy = float(entry["E"]) * MUON.mass
    found = integral(TOTAL, lambda t: np.exp(-energy * t), unit=energy) * MUON.mass**3
    assert found == pytest.approx(float(entry["dispersive"]), rel=1e-12)


@pytest.mark.parametrize("lattice", reference()["C vector meson"]["lattice"])
def test_sums_of_a_vector_meson(lattice):
    a, extent = float(lattice.split()[0][2:]), int(lattice.split("=")[-1])
    mass, f = 0.775 * a / HBARC, 0.1545 * a / HBARC
    correlator = periodic(extent, [(f**2 * mass / 2, mass)])
    assert_sums(correlator, a, reference()["C vector meson"]["lattice"][lattice]["sums 1e-10"], 1e-11)


def test_integrals_of_a_vector_meson():
    def meson(t):
        return 0.1545**2 * 0.775 / 2 * np.exp(-0.775 * t)

    for window, value in reference()["C vector meson"]["time-momentum integrals, 1e-10"].items():
        found = integral(WINDOWS[window], meson, step=0.03, low=-9.0, high=4.6)
        assert found * 1e10 / (np.pi * MUON.inverse_alpha) ** 2 == pytest.approx(float(value), rel=1e-11)
    total = integral(TOTAL, meson, step=0.03, low=-9.0, high=4.6) * 1e10 / (np.pi * MUON.inverse_alpha) ** 2
    assert total == pytest.approx(2 * 230.18010088, rel=1e-8)  # a public code's vector is half of it


@pytest.mark.parametrize("lattice", reference()["D free quarks"]["lattice"])
def test_sums_of_free_quarks(lattice):
    numbers = reference()["D free quarks"]["lattice"][lattice]
    a, extent = float(lattice.split()[0][2:]), int(lattice.split("=")[-1])
    n, inverse = np.arange(1, extent), a / HBARC
    massive, massless = (
        np.pad(sum(free_quark_correlator(k * inverse, m, 5 / 3) for k in (n, extent - n)), (1, 0))
        * inverse**3
        for m in (0.3, 0.0)
    )
    assert_sums(massive, a, numbers["sums 1e-10"], 3e-11)
    for window, value in numbers["massless SD, W"].items():
        assert a_mu(massless, a, window) == pytest.approx(float(value), rel=3e-11)


def test_staggered_quarks_are_normalised():
    """C / L^3 times 5/9 is G(t): free HISQ quarks of 0.3 GeV, from 0.18 to 0.12 fm at fixed L."""
    for m in ("0.1", "0.4"):
        exact = reference()["F free staggered correlators"]["data"]
        local = exact[f"hisq m={m} (M = 2m + D), 6^3 x 12, antiperiodic t"]["GX_GX"]
        assert np.allclose(free_hisq_correlator(6, 12, float(m)) * 6**3, local, rtol=0, atol=1e-11)
    for a, space, window, total in ((0.18, 16, 0.11, 0.03), (0.12, 24, 0.03, 0.013)):
        found = 5 / 9 * free_hisq_correlator(space, 2 * space, 0.3 * a / HBARC, twist=0.25)
        assert a_mu(found, a, "W") == pytest.approx(97.056, rel=window)
        assert a_mu(found, a) == pytest.approx(225.105, rel=total)


@pytest.mark.slow
def test_staggered_quarks_are_normalised_on_a_finer_lattice():
    found = 5 / 9 * free_hisq_correlator(32, 64, 0.3 * 0.09 / HBARC, twist=0.25)
    assert a_mu(found, 0.09, "W") == pytest.approx(97.056, rel=0.011)
    assert a_mu(found, 0.09) == pytest.approx(225.105, rel=0.007)


def test_sums_with_oscillating_states():
    case, correlator, smooth = synthetic()
    a = float(case["a_fm"])
    assert_sums(correlator, a, case["sum with C"], 1e-11)
    assert_sums(smooth, a, case["sum without the oscillating states"], 1e-11)
    key = "sum with S(n) = [C(n-1)+2C(n)+C(n+1)]/4 (S(1) with C(0))"
    assert_sums(without_oscillation(correlator), a, case[key], 1e-11)
    assert a_mu(without_oscillation(correlator), a) > 1.045 * a_mu(smooth, a)  # no sum is over it


def test_windows_add_up():
    _, correlator, _ = synthetic()
    total, *parts = (a_mu(correlator, 0.09, window) for window in ("total", "SD", "W", "LD"))
    assert sum(parts) == pytest.approx(total, rel=1e-14)
    partial = HvpSum(Scale(0.09, 0.0)).partial_sums(correlator)
    assert partial.shape == (49,) and partial[-1] == pytest.approx(total, rel=1e-14)
    upto = HvpSum(Scale(0.09, 0.0), last=20).value(correlator)
    assert upto == pytest.approx(partial[20], rel=1e-14)


@pytest.mark.parametrize("window", WINDOWS.values(), ids=WINDOWS)
def test_derivative_with_respect_to_the_spacing(window):
    _, correlator, _ = synthetic()
    h = 1e-5
    above, below = (HvpSum(Scale(0.09 * (1 + s), 0.0), window).value(correlator) for s in (h, -h))
    total = HvpSum(Scale(0.09, 0.0), window)
    slope = total.slices(correlator) @ total.slopes(len(correlator))
    assert slope == pytest.approx((above - below) / (2 * h), rel=2e-9)


def test_folding_and_moments():
    """The moments are those of a public code: the middle slice is on both sides."""
    assert fold([1, 2, 3, 4]).tolist() == [1, 3, 3] and fold([1, 2, 3, 5, 4]).tolist() == [1, 3, 4]
    for correlator in ([1, 2, 3, 2], [1, 2, 3, 3, 2]):
        assert time_moments(correlator, (0, 2, 4)).tolist() == [11, 28, 100]
    inverse = 0.09 / HBARC
    assert time_moments([1, 2, 3, 2], (0, 4), Scale(0.09, 0)) == pytest.approx(
        [11 / inverse**2, 100 * inverse**2]
    )


def test_spacing_from_a_length():
    scale = Scale.from_ratio(Measured(1.4, 0.01, "w0/a"), Measured(0.17, 0.001, "w0"))
    assert scale.a_fm == pytest.approx(0.17 / 1.4)
    assert scale.error / scale.a_fm == pytest.approx(np.hypot(0.01 / 1.4, 0.001 / 0.17))


def test_what_is_refused():
    scale, correlator = Scale(0.09, 0.0003), np.ones(32)
    for call, words in (
        (lambda: Scale(0.09, None), "error of the lattice spacing in fm must be a finite number, got None"),
        (lambda: Scale(0.09), "error of the lattice spacing in fm must be a finite number, got nan"),
        (lambda: Scale(0.09, -1.0), "must not be negative, got -1.0"),
        (lambda: Scale(0.0, 0.0), "must be positive, got 0.0 fm"),
        (lambda: HvpSum(0.09), r"needs a scale, like Scale\(a_fm=0.1222, error=0.0003\), got 0.09"),
        (lambda: HvpSum(scale, middle=2), "middle is 0.5 or 1, got 2"),
        (lambda: Scale.from_ratio(Measured(0, 1, "w0/a"), Measured(1, 0, "w0")), "w0/a must be positive"),
        (lambda: Window("mine", 1.0, 0.4), "rises before it falls"),
        (lambda: Muon(mass=-1), "mass and 1/alpha must be positive"),
        (lambda: muon_kernel(-0.1), "finite times t >= 0"),
        (
            lambda: HvpSum(scale, WINDOWS["W2"]).value(correlator),
            "W2 begins at 1.5 fm and rises over 0.3 fm, but",
        ),
        (lambda: HvpSum(scale, last=17).value(correlator), "to slice 17, beyond N/2 = 16"),
        (lambda: fold([1, 2]), r"at least 4 slices, got \[2\]"),
    ):
        refuses(words, call)
