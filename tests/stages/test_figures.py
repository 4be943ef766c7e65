"""Figures and tables of the report show the numbers that they were given."""

import io

import numpy as np
import pytest

from stages.loops import loop_figures as figures
from stages.lqcd.analysis.budget import error_budget
from stages.lqcd.analysis.table import correlator_table
from stages.mesons import meson_figures

RNG = np.random.default_rng(606)


def test_correlators_and_loops_are_drawn_with_their_error_bars() -> None:
    values, errors = RNG.normal(size=(3, 6)), RNG.uniform(0.1, 1, size=(3, 6))
    above, below = figures.correlator_figure(values, errors).axes
    drawn = [*above.containers, *below.containers]
    assert [bars.get_label() for bars in drawn] == ["light", "strange", "light - strange"]
    for flavour, bars in enumerate(drawn):
        assert np.allclose(bars[0].get_ydata(), values[flavour])
        heights = [segment[1, 1] - segment[0, 1] for segment in bars[2][0].get_segments()]
        assert np.allclose(heights, 2 * errors[flavour])

    values = RNG.normal(size=(3, 4, 6))
    (axes,) = figures.loops_figure(values, np.ones_like(values), flavour=1).axes
    assert len(axes.containers) == 4
    assert np.allclose(axes.containers[2][0].get_ydata(), values[1, 2])
    assert "strange" in axes.get_ylabel()


def test_plaquettes_and_spectra_have_a_line_per_configuration() -> None:
    (axes,) = figures.plaquette_figure(RNG.uniform(size=(3, 3)), ["a.1", "a.2", "a.3"]).axes
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["a.1", "a.2", "a.3"]

    values = np.sort(RNG.uniform(0.01, 1, size=(3, 8)))
    (axes,) = figures.spectrum_figure(values, {"light": 0.05, "strange": 0.2}).axes
    drawn = [line.get_ydata() for line in axes.lines]
    assert np.allclose(drawn[:3], values)
    assert [level[0] for level in drawn[3:]] == pytest.approx([4 * 0.05**2, 4 * 0.2**2])
    assert axes.get_yscale() == "log"


def test_curves_of_convergence_and_cost_are_logarithmic() -> None:
    (axes,) = figures.convergence_figure(
        {"light": {"history": [1.0, 0.1]}, "strange": {"history": [1.0, 0.01, 1e-4], "history_step": 3}}
    ).axes
    assert axes.get_yscale() == "log"
    assert [list(line.get_xdata()) for line in axes.lines] == [[0, 1], [0, 3, 6]]

    curves = {"plain": ([1.0, 10.0], [3.0, 1.0]), "low modes": ([4.0, 9.0], [0.3, 0.1])}
    figure = figures.estimator_cost_figure(curves, {"plain": (5.0, 2.0), "low modes": (5.0, 0.2)})
    (axes,) = figure.axes
    assert [len(line.get_xdata()) for line in axes.lines] == [2, 1, 2, 1]
    assert axes.get_xscale() == axes.get_yscale() == "log"
    assert [text.get_text() for text in figure.legends[0].get_texts()] == list(curves)


def test_error_budget_recovers_the_variances() -> None:
    """Loops = gauge part of spread 2 + noise of spread 3; corrections of spread 0.1."""
    loops = 2 * RNG.normal(size=(400, 1, 5)) + 3 * RNG.normal(size=(400, 8, 5))
    corrections = 0.1 * RNG.normal(size=(400, 4, 5))
    budget = error_budget(loops, corrections)
    assert np.allclose(budget.sloppy, 3 / np.sqrt(np.arange(1, 9)), rtol=0.03)
    assert budget.correction == pytest.approx(0.05, rel=0.05)
    assert budget.gauge == pytest.approx(2, rel=0.1)
    assert error_budget([[1, -1], [-1, 1]], corrections).gauge == 0  # hidden by the noise
    (axes,) = figures.error_budget_figure(loops, corrections).axes
    assert np.allclose(axes.lines[0].get_ydata(), budget.sloppy)
    assert [line.get_label() for line in axes.lines][1] == "correction, 4 fine vectors"
    loops = RNG.normal(size=(1, 5, 4))
    assert np.isnan(error_budget(loops, loops[:, :1]).correction)
    (axes,) = figures.error_budget_figure(loops, loops[:, :1]).axes
    assert len(axes.lines) == 1


def test_table_reads_back_to_the_last_bit():
    values, errors = RNG.normal(size=(2, 3, 5)) * 1e-7
    text = correlator_table(values, errors, ("light", "strange", "light - strange"), {"lattice": "4x4x4x8"})
    assert text.startswith("# lattice: 4x4x4x8\n")
    read = np.loadtxt(io.StringIO(text))
    assert np.array_equal(read[:, 0], np.arange(5))
    assert np.allclose(read[:, 1::2], values.T, rtol=1e-15, atol=0)
    assert np.allclose(read[:, 2::2], errors.T, rtol=1e-15, atol=0)
    header = text.splitlines()[1]
    assert header.count("error") == 3
    assert len(header) == len(text.splitlines()[2])


def test_levels_figure_begins_after_t0_and_leaves_out_what_is_not_known():
    energy = RNG.uniform(0.3, 1, size=(2, 12))
    energy[1, 4] = np.nan
    (axes,) = meson_figures.levels_figure(energy, 0.1 * energy, ["pion 0", "pion 1"], 2).axes
    drawn = [bars[0].get_ydata() for bars in axes.containers]
    assert np.array_equal(drawn[0], energy[0, 3:7]) and np.array_equal(drawn[1], energy[1, [3, 5, 6]])
    assert axes.lines[-1].get_xdata() == [2, 2]


def hollow(bars):
    return bars[0].get_markerfacecolor() == "white"


def test_points_without_an_error_are_hollow():
    mass, error = np.ones((1, 12)), np.full((1, 12), 0.1)
    error[0, [2, 4]] = np.nan
    (axes,) = meson_figures.effective_mass_figure(mass, error, ["pion"]).axes
    expected = [([0, 1, 3, 5, 6], False), ([2, 4], True)]
    assert [(list(bars[0].get_xdata().round()), hollow(bars)) for bars in axes.containers] == expected
    (axes,) = meson_figures.effective_mass_figure(mass, 0 * mass * np.nan, ["pion"]).axes
    assert [hollow(bars) for bars in axes.containers] == [True]
    above, below = figures.correlator_figure(np.ones((3, 6)), np.full((3, 6), np.nan)).axes
    assert all(map(hollow, [*above.containers, *below.containers]))


def test_no_marker_of_a_legend_stands_among_points():
    one = np.ones((1, 3))
    for figure in (
        figures.plaquette_figure(one, ["a"]),
        figures.correlator_figure(np.ones((3, 6)), np.ones((3, 6))),
        figures.loops_figure(np.ones((3, 4, 6)), np.ones((3, 4, 6)), 0),
        meson_figures.meson_figure(one, one, ["pion"]),
        meson_figures.levels_figure(np.ones((1, 6)), np.ones((1, 6)), ["level 0"], 0),
        meson_figures.effective_mass_figure(one, one, ["pion"]),
    ):
        figure.draw_without_rendering()
        (legend,) = figure.legends
        below = max(axes.get_window_extent().y1 for axes in figure.axes)
        assert legend.get_window_extent().y0 >= below and not any(axes.get_legend() for axes in figure.axes)


def test_masses_go_to_the_middle_and_negative_correlators_are_triangles() -> None:
    mass = RNG.uniform(0.3, 1, size=(2, 12))
    (axes,) = meson_figures.effective_mass_figure(mass, 0.1 * mass, ["pion", "rho"]).axes
    assert [len(bars[0].get_ydata()) for bars in axes.containers] == [7, 7]
    assert np.array_equal(axes.containers[1][0].get_ydata(), mass[1, :7])

    values = np.array([[1.0, 0.1, -0.01, 0.1]])
    figure = meson_figures.meson_figure(values, 0.1 * abs(values), ["pion"])
    marks = {bars[0].get_marker(): bars[0].get_ydata() for bars in figure.axes[0].containers}
    assert np.array_equal(marks["v"], [0.01]) and np.array_equal(marks["o"], [1.0, 0.1, 0.1])
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["pion"]
