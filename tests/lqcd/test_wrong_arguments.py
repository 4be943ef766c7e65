"""Arguments of the library's functions that are no such thing: one error that says what is meant."""

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from stages.base.errors import InputError
from stages.lqcd.analysis.bounding import Tail
from stages.lqcd.analysis.common_resampling import Resampling
from stages.lqcd.analysis.disconnected import disconnected_correlator
from stages.lqcd.analysis.gevp import levels_of, spectrum
from stages.lqcd.analysis.hvp_sum import HvpSum
from stages.lqcd.analysis.jackknife import bin_means, bootstrap_samples, jackknife_samples
from stages.lqcd.analysis.scale import Scale
from stages.lqcd.analysis.stochastic_error import noise_moments
from stages.lqcd.distillation.columns import FullColumns, StochasticColumns
from stages.lqcd.distillation.eigenvectors import LaplaceSolver
from stages.lqcd.distillation.generalised_perambulators import Ends
from stages.lqcd.distillation.laph_dilution import LaphDilution
from stages.lqcd.eigen.block_lanczos import BlockLanczos
from stages.lqcd.estimators.truncated import estimate
from stages.lqcd.gauge.ape import ape_links
from stages.lqcd.gauge.hyp import hyp_links
from stages.lqcd.gauge.stout import stout_links
from stages.lqcd.lattice.geometry import Lattice
from stages.lqcd.multigrid.aggregates import Aggregates, Grid
from stages.lqcd.multigrid.levels import multigrid_of
from stages.lqcd.multigrid.setup import LevelParameters, Multigrid
from stages.lqcd.multigrid.smoothers import PolynomialSmoother
from stages.lqcd.noise.vectors import noise_vectors
from stages.lqcd.solvers.cg import BatchedCG
from stages.lqcd.solvers.defect_correction import DefectCorrection
from stages.lqcd.solvers.gcr import GCR
from stages.lqcd.solvers.sstep_cg import SStepCG
from stages.lqcd.spectroscopy.mesons import meson_correlators
from stages.lqcd.spectroscopy.quark_sources import SourcePlace, point_source, wall_source, z2_wall_source
from stages.lqcd.spectroscopy.staggered_mesons import staggered_correlator, staggered_source
from stages.lqcd.spectroscopy.staggered_operators import SpinTaste

TINY = Lattice((2, 2, 2, 4))
PLACE = SourcePlace(1, (0, 0, 0))
PION = SpinTaste.parse("G5-G5")
SINGLE = np.zeros((4, 2, 16, 3, 3), np.complex64)
AT_REST = [(0, 0, 0)]


def mesons(columns: tuple[int, ...] = (12,), place: object = PLACE, momenta: object = AT_REST) -> None:
    meson_correlators(np.zeros((2, 16, 12, *columns), complex), TINY, place, ["Gamma5"], momenta)  # type: ignore[arg-type]


def staggered(columns: tuple[int, ...] = (3,), place: object = PLACE, momenta: object = AT_REST) -> None:
    quark, antiquark = np.zeros((2, 16, 3, 3), complex), np.zeros((2, 16, 3, *columns), complex)
    staggered_correlator(quark, antiquark, PION, None, TINY, place, momenta)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: point_source(TINY, "x0y0z0t1"), r"got 'x0y0z0t1': give SourcePlace.parse\('x0y0z0t1'\)"),
        (lambda: wall_source(TINY, "t1"), r"a place is a SourcePlace, got 't1'"),
        (lambda: z2_wall_source(TINY, 3, "a", 1), r"got 3: give SourcePlace.parse\('x0y0z0t8'\)"),
        (lambda: staggered_source(TINY, "t1", "a", 1), r"a place is a SourcePlace, got 't1'"),
        (lambda: mesons(place="t1"), r"a place is a SourcePlace, got 't1'"),
        (lambda: mesons(place=SourcePlace(9)), "t = 9 is outside the lattice"),
        (lambda: mesons(()), r"\[2, 16, 12, column\], got \[2, 16, 12\]: give all columns"),
        (lambda: mesons((1,)), "12 columns .* or 4 .*, got 1"),
        (lambda: mesons(momenta=[]), r"three integers each, such as \[\(0, 0, 0\)\], got \[\]"),
        (lambda: mesons(momenta=(0, 0, 0)), r"three integers each, such as .* got \(0, 0, 0\)"),
        (lambda: staggered(()), r"as many columns each, got \[2, 16, 3, 3\] and \[2, 16, 3\]"),
        (lambda: staggered((1,)), r"as many columns each, got \[2, 16, 3, 3\] and \[2, 16, 3, 1\]"),
        (lambda: staggered(place="t1"), r"a place is a SourcePlace, got 't1'"),
        (lambda: staggered(momenta=[(0, 0)]), r"three integers each, such as .* got \[\(0, 0\)\]"),
        (
            lambda: multigrid_of([{"aggregate": 4, "smoothing": 2}], 1),
            "an aggregate has four extents .* got 4",
        ),
        (lambda: disconnected_correlator([]), "at least one piece, got none"),
        (lambda: estimate([]), "at least one piece, got none"),
        (lambda: noise_moments([]), "at least one piece, got none"),
        (lambda: spectrum(np.ones(8), np.ones((3, 8)), 1), r"got shapes \(8,\) and \(3, 8\)"),
        (lambda: spectrum(np.ones((2, 2, 8)), np.ones((2, 2, 8)), 1), r"\(2, 2, 8\) and \(2, 2, 8\)"),
        (lambda: levels_of(np.ones((2, 3, 8)), 1), r"operator, operator, time\], got shape \(2, 3, 8\)"),
        (lambda: bin_means(np.ones(4), 1.5), "width of bins is a whole number of configurations, got 1.5"),
        (lambda: bin_means(2.0, 1), r"data are \[config, ...\], got the number 2.0"),
        (lambda: jackknife_samples(2.0), r"data are \[config, ...\], got the number 2.0"),
        (lambda: bootstrap_samples(np.ones(4), 1.5, 3), r"whole number of samples, got .*, 1.5 samples"),
        (lambda: LaplaceSolver(0), "number of eigenvectors must be a whole number of at least 1, got 0"),
        (lambda: LaplaceSolver(2, block=33), "block of Lanczos vectors must be 1 to 32, got 33"),
        (lambda: mesons(place=SourcePlace(1.5)), "t of a source must be a whole number .*, got 1.5"),  # type: ignore[arg-type]
        (lambda: stout_links(SINGLE, TINY, 0.1, 1), r"got complex64 .*: give links.astype\(complex\)"),
        (lambda: ape_links(SINGLE, TINY, 0.1, 1), r"got complex64 .*: give links.astype\(complex\)"),
        (lambda: hyp_links(SINGLE, TINY, (1, 1, 1), 1), r"got complex64 .*: give links.astype\(complex\)"),
    ],
)
def test_wrong_arguments_get_one_error_that_says_so(call: Callable[[], object], said: str) -> None:
    with pytest.raises(InputError, match=said):
        call()


@pytest.mark.parametrize(
    "make",
    [
        lambda: FullColumns((0, 1.5), 4, 2),  # type: ignore[arg-type]
        lambda: StochasticColumns(((1.5, 0),), LaphDilution("full"), 4, 2, "a", 1, "z2"),  # type: ignore[arg-type]
        lambda: StochasticColumns(((1, 1.5),), LaphDilution("full"), 4, 2, "a", 1, "z2"),  # type: ignore[arg-type]
        lambda: Ends(FullColumns((0,), 4, 2), (1.5,)),  # type: ignore[arg-type]
        lambda: noise_vectors(TINY, 0, "a", 1, [1.5]),  # type: ignore[list-item]
    ],
)
def test_times_and_indices_are_whole(make: Callable[[], object]) -> None:
    with pytest.raises(InputError, match=r"must be a whole number .*, got 1\.5"):
        make()


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (LevelParameters, "vectors refinements steps"),
        (Multigrid, "coarsest_steps seed"),
        (PolynomialSmoother, "steps"),
        (partial(LaplaceSolver, 2), "block max_restarts"),
        (partial(BlockLanczos, 2), "block subspace degree max_restarts seed"),
        (partial(BatchedCG, 1e-8), "max_iterations"),
        (partial(GCR, 1e-8), "restart"),
        (partial(SStepCG, 1e-8), "s"),
        (partial(DefectCorrection, BatchedCG(1e-8)), "max_iterations"),
        (partial(Tail, 0.3), "slice disconnected_slice steps"),
        (partial(HvpSum, Scale(0.12, 0.001)), "last"),
        (Resampling, "bin bootstrap seed"),
    ],
)
def test_numbers_of_parameters_are_whole(make: Callable[..., object], names: str) -> None:
    for name in names.split():
        with pytest.raises(InputError, match=rf"{name}.* must be a whole number of at least [01], got 2\.5"):
            make(**{name: 2.5})


@pytest.mark.parametrize("make", [LevelParameters, Grid, partial(Aggregates, Grid((4, 4, 4, 4)))])
def test_extents_are_four_whole_numbers(make: Callable[..., object]) -> None:
    for extents in ((2.5, 4, 4, 4), (4, 4, 4), (0, 4, 4, 4), 4):
        with pytest.raises(InputError, match=r"has four extents \(x, y, z, t\), whole numbers of at least 1"):
            make(extents)
