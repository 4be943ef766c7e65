"""The stage files without the engine, as in a notebook: configuration -> links -> loops -> average."""

import numpy as np
import pytest
from settings import grouped

from pipeline import At
from stages.base.errors import InputError
from stages.ensemble import configuration
from stages.ensemble import staggered_operator as operators
from stages.loops import correlator
from stages.loops import current_loops as loops
from stages.loops import low_mode_loops as low_modes
from stages.lqcd.dirac.staggered import SquaredDslash
from stages.lqcd.gauge.hisq import naive_links
from stages.lqcd.solvers.deflation import StaggeredSpace
from stages.lqcd.solvers.space import Space
from support.matrices import matrix_of

EXTENTS = (4, 4, 4, 4)
SOLVE = {"mass": 0.08, "current_links": "thin", "solver": "block_cgrq", "precision": "double", "block": 8}
NOISE = {"seed": 2718, "noise": "z2", "dilution": {"displacement": 2}}


@pytest.fixture(scope="module")
def gauge():
    at = At(config="chain.3")
    return configuration.heatbath_configuration(
        at=at, extents=EXTENTS, beta=6.0, seed=99, sweeps=8, overrelaxation=2
    )


@pytest.fixture(scope="module")
def staggered(gauge):
    return operators.hisq_operator(gauge, at=At(config="chain.3"), boundary="antiperiodic", naik_epsilon=0.0)


@pytest.fixture(scope="module")
def exact(staggered):
    return loops.exact_loops(staggered, at=At(config="chain.3"), **grouped(**SOLVE, tolerance=1e-11))


def measure(staggered, indices, mass=0.08, tolerance=1e-10, label="chain.3", **options):
    at = At(config=label, noise=indices)
    settings = {**SOLVE, **NOISE, "mass": mass, **options}
    return at, loops.current_loops(staggered, at=at, **grouped(**settings, tolerance=tolerance))


def test_heat_bath_is_reproducible_and_seeded_by_the_label(gauge):
    parameters = {"extents": EXTENTS, "beta": 6.0, "seed": 99, "sweeps": 8, "overrelaxation": 2}
    at = At(config="chain.3")
    again = configuration.heatbath_configuration(at=at, **parameters)
    other = configuration.heatbath_configuration(at=At(config="chain.4"), **parameters)
    assert np.array_equal(gauge.links, again.links)
    assert not np.array_equal(gauge.links, other.links)
    assert at.reports[-1] == {"done": 8, "total": 8}
    observed = configuration.gauge_observables(gauge, at=at)
    assert at.statistics["plaquette"] == observed.plaquette[0]
    assert 0.5 < observed.plaquette[0] < 0.7
    assert observed.unitarity_deviation < 1e-12


def test_file_configuration_checks_the_lattice(reference_data):
    path = reference_data / "milc" / "lat.sample.l4448"
    gauge = configuration.file_configuration(at=At(config="a"), path=path, extents=(4, 4, 4, 8))
    assert gauge.lattice.extents == (4, 4, 4, 8)
    with pytest.raises(
        InputError, match=r"lat.sample.l4448 holds a lattice of 4x4x4x8, but the ensemble is 8x8x8x8"
    ):
        configuration.file_configuration(at=At(config="a"), path=path, extents=(8, 8, 8, 8))


def test_full_dilution_with_real_solves_is_the_exact_trace(staggered, exact):
    full = {"color": True, "displacement": 4}
    at, result = measure(staggered, (5,), tolerance=1e-11, dilution=full)
    scale = np.abs(exact.current).max()
    assert result.current.shape == (1, 1, 4, 4)
    assert np.abs(result.current[0, 0] - exact.current).max() < 1e-9 * scale
    assert np.allclose(result.condensate[0, 0], exact.condensate, rtol=1e-9)
    assert at.statistics["rhs"] == 3 * 256
    assert at.statistics["residual_max"] <= 1e-11
    assert at.statistics["full_residual_max"] <= 2e-11
    assert at.reports[-1]["done"] == at.reports[-1]["total"] == 96
    assert at.statistics["history"][0] == 1.0


@pytest.mark.parametrize(
    ("solver", "precision", "block"),
    [
        ("batched_cg", "double-single", 1),
        pytest.param("batched_cg", "double-single", 4, marks=pytest.mark.slow),
        pytest.param("batched_cg", "double-half", 7, marks=pytest.mark.slow),
        pytest.param("batched_cg", "double-single", 7, marks=pytest.mark.slow),
        pytest.param("batched_cg", "double", 7, marks=pytest.mark.slow),
        pytest.param("block_cgrq", "double-single", 7, marks=pytest.mark.slow),
        pytest.param("block_cgrq", "double", 7, marks=pytest.mark.slow),
    ],
)
def test_solver_and_precision_do_not_alter_the_loops(staggered, solver, precision, block):
    _, reference = measure(staggered, (0, 1), tolerance=1e-12)
    _, result = measure(staggered, (0, 1), solver=solver, precision=precision, tolerance=1e-10, block=block)
    assert np.allclose(result.current, reference.current, rtol=0, atol=1e-7)
    assert np.allclose(result.condensate, reference.condensate, rtol=1e-8)


def test_chunks_of_noise_and_links_of_the_current(staggered) -> None:
    _, together = measure(staggered, (3, 4, 5))
    for row, number in enumerate((3, 4, 5)):
        _, alone = measure(staggered, (number,))
        assert np.allclose(alone.current[0], together.current[row], rtol=0, atol=1e-7)

    _, thin = measure(staggered, (0,))
    _, fat = measure(staggered, (0,), current_links="fat")
    assert np.array_equal(thin.condensate, fat.condensate)
    assert np.abs(thin.current - fat.current).max() > 1e-2


@pytest.mark.slow
def test_naive_stage_links_conserve_the_charge(gauge):
    at = At(config="chain.3")
    made = operators.naive_operator(gauge, at=at, boundary="antiperiodic")
    result = loops.exact_loops(made, at=at, **grouped(**SOLVE, tolerance=1e-12))
    assert np.ptp(result.current[3]) < 1e-10
    assert at.statistics["reunitarisation_deviation"] < 1e-12
    assert np.array_equal(
        made.links.thin(), naive_links(gauge.links, gauge.lattice, boundary="antiperiodic").thin()
    )


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"solver": "gmres"}, "solver must be one of block_cgrq, batched_cg, got 'gmres'"),
        ({"precision": "half"}, "precision must be one of double, double-single, double-half, got 'half'"),
        ({"current_links": "stout"}, "the current's links must be one of thin"),
        (
            {"dilution": {"displacement": 3}},
            "dilution.displacement = 3 does not divide every extent of the lattice 4x4x4x4",
        ),
        ({"noise": "z3"}, "noise kind must be one of z2, z4, u1, gaussian, got 'z3'"),
        ({"mass": 0.0}, "mass of a staggered solve must be positive, got 0"),
        ({"deflated_noise": True}, "deflated noise needs the modes that it is orthogonal to"),
        ({"block": 0}, "block of right-hand sides must be a whole number of at least 1, got 0"),
    ],
)
def test_bad_parameters_are_one_clear_error(staggered, option, message):
    with pytest.raises(InputError, match=message):
        measure(staggered, (0,), **option)


@pytest.fixture(scope="module")
def measured(staggered):
    """Loops of one configuration as the engine hands them over: (coordinates, result) of each chunk."""
    return [flavours(staggered, indices, 1e-3) for indices in [(0, 1), (2, 3)]], [
        flavours(staggered, (0, 1), 1e-10)
    ]


def flavours(staggered, indices, tolerance):
    """One chunk of both masses and of their difference."""
    (at, light), (_, strange) = (measure(staggered, indices, mass, tolerance) for mass in (0.08, 0.3))
    return at, loops.flavour_loops(light, strange, at=at)


def test_correlator_of_a_configuration(measured):
    at = At(config="chain.3")
    result = correlator.disconnected_correlator(*measured, at=at)
    assert result.correlator.shape == (3, 4)
    assert result.loops.shape == result.loops_error.shape == (3, 4, 4)
    assert np.allclose(result.loops[2], result.loops[0] - result.loops[1], rtol=0, atol=1e-12)
    assert np.allclose(result.condensate[2], result.condensate[0] - result.condensate[1], rtol=1e-12)
    assert np.all(result.loops_error > 0)
    assert at.statistics["noise_vectors"] == [4, 2]
    assert "charges" in at.statistics["not_included"]
    plain = correlator.disconnected_correlator(measured[0], at=at)
    assert np.allclose(plain.correlator, result.correlator, rtol=0.1, atol=0.05)
    assert not np.array_equal(plain.correlator, result.correlator)


def test_one_noise_vector_is_refused(measured):
    ((at, pair), *_), _ = measured
    lone = [(At(config="a", noise=at["noise"][:1], probe=(0,)), type(pair)(*(array[:1] for array in pair)))]
    with pytest.raises(InputError, match="got 1"):
        correlator.disconnected_correlator(lone, at=At(config="a"))


@pytest.mark.slow
def test_probes_are_averaged_for_each_noise_vector_however_they_are_cut_into_chunks(staggered):
    """Four probes in one chunk and in two: the same correlator; probe 0 alone is the plain noise."""

    def chunk(probes):
        at = At(config="chain.3", noise=(0, 1), probe=probes)
        light, strange = (
            loops.current_loops(staggered, at=at, **grouped(tolerance=1e-9, **{**SOLVE, **NOISE, **options}))
            for options in ({"dilution": {}}, {"dilution": {}, "mass": 0.3})
        )
        return at, loops.flavour_loops(light, strange, at=at)

    whole, halves = [chunk((0, 1, 2, 3))], [chunk((0, 1)), chunk((2, 3))]
    assert whole[0][1].current.shape == (2, 4, 3, 4, 4)
    at = At(config="chain.3")
    results = [correlator.disconnected_correlator(chunks, at=at) for chunks in (whole, halves)]
    for one, two in zip(*results, strict=True):
        assert np.allclose(one, two, rtol=0, atol=1e-6 * np.abs(one).max())
    mean = whole[0][1].current[:, :, 0].mean(axis=(0, 1))
    assert np.allclose(results[0].loops[0], mean, rtol=0, atol=1e-13)
    _, plain = measure(staggered, (0, 1), dilution={})
    assert np.allclose(whole[0][1].current[:, 0, 0], plain.current[:, 0], rtol=0, atol=1e-6)
    with pytest.raises(InputError, match="every noise vector needs the same probes"):
        one, _ = halves
        correlator.disconnected_correlator([(At(noise=(7, 8), probe=(2, 3)), one[1]), *halves[:1]], at=at)


def test_split_even_loops_hold_the_plain_flavours_and_a_quieter_difference(staggered):
    at = At(config="chain.3", noise=tuple(range(8)))
    options = {**SOLVE, **NOISE, "dilution": {}, "tolerance": 1e-9}
    del options["mass"]
    split = loops.split_even_loops(staggered, at=at, masses=loops.Masses(0.08, 0.3), **grouped(**options))
    assert at.statistics["rhs"] == 8 * 2 * 2
    (_, light), (_, strange) = (measure(staggered, range(8), mass, dilution={}) for mass in (0.08, 0.3))
    plain = loops.flavour_loops(light, strange, at=at)
    assert np.allclose(split.current[:, :, :2], plain.current[:, :, :2], rtol=0, atol=1e-6)
    spread, plain_spread = (made.current[:, 0, 2].var(axis=0).mean() for made in (split, plain))
    assert spread < 0.7 * plain_spread
    assert np.allclose(split.current[:, 0, 2].mean(axis=0), plain.current[:, 0, 2].mean(axis=0), atol=1)


@pytest.mark.parametrize(
    ("average", "options"),
    [(correlator.ensemble_average, {}), (correlator.bootstrap_average, {"samples": 5, "seed": 3})],
)
def test_configurations_that_fill_no_bin_are_counted(measured, average, options):
    one = correlator.disconnected_correlator(*measured, at=At(config="a"))
    ensemble = [(At(config=str(number)), one) for number in range(5)]
    at = At()
    average(ensemble, at=at, jackknife_bin=2, **options)
    names = ("configurations", "configurations_given", "bins")
    assert [at.statistics[name] for name in names] == [4, 5, 2]


def test_ensemble_and_bootstrap_average(measured):
    one = correlator.disconnected_correlator(*measured, at=At(config="a"))
    ensemble = [
        (At(config=str(number)), correlator.Correlator(*(factor * array for array in one)))
        for number, factor in enumerate((1.0, 2.0, 3.0, 6.0))
    ]
    at = At()
    average = correlator.ensemble_average(ensemble, at=at)
    assert np.allclose(average.correlator, 3 * one.correlator, rtol=1e-12)
    spread = np.std([1, 2, 3, 6], ddof=1) / 2
    assert np.allclose(average.correlator_error, spread * np.abs(one.correlator), rtol=1e-12)
    diagonal = np.diagonal(average.correlator_covariance, axis1=1, axis2=2)
    assert np.allclose(np.sqrt(diagonal), average.correlator_error, rtol=1e-10)
    assert average.correlator_samples.shape == (4, 3, 4)
    assert np.allclose(average.condensate, 3 * one.condensate, rtol=1e-12)
    assert at.statistics["configurations"] == at.statistics["configurations_given"] == 4
    binned = correlator.ensemble_average(ensemble, at=at, jackknife_bin=2)
    assert np.allclose(binned.correlator_error, 1.5 * np.abs(one.correlator), rtol=1e-12)
    drawn = correlator.bootstrap_average(ensemble, at=at, samples=500, seed=31)
    assert np.allclose(drawn.correlator, average.correlator, rtol=1e-12)
    assert np.allclose(drawn.correlator_error, np.std([1, 2, 3, 6]) / 2 * np.abs(one.correlator), rtol=0.2)
    single = correlator.ensemble_average(ensemble[:1], at=at)
    assert np.allclose(single.correlator, one.correlator, rtol=1e-12)
    assert np.isnan(single.correlator_error).all() and np.isnan(single.correlator_covariance).all()
    with pytest.raises(InputError, match="1 configurations in bins of 2 leave no bin"):
        correlator.ensemble_average(ensemble[:1], at=at, jackknife_bin=2)


@pytest.fixture(scope="module")
def deflation(staggered):
    """The 24 lowest modes, by dense diagonalisation."""
    B = SquaredDslash(staggered, 0)
    _, vectors = np.linalg.eigh(matrix_of(B.apply, B.shape))
    lowest = np.ascontiguousarray(vectors[:, :24]).reshape(128, 3, 24)
    return StaggeredSpace(staggered, Space.measured(B, lowest))


SPLIT = {name: value for name, value in {**SOLVE, **NOISE}.items() if name != "mass"}


@pytest.mark.slow
def test_low_modes_and_fully_diluted_deflated_noise_are_the_exact_loops(staggered, deflation, exact):
    """The whole chain of stages, with iterative solves: low part + remainder of each noise vector."""
    at = At(config="chain.3", noise=(5,))
    low = low_modes.low_mode_loops(deflation, at=at)
    assert low.residual.max() < 1e-9 and at.statistics["modes"] == 24
    full = {**SPLIT, "dilution": {"color": True, "displacement": 4}, "tolerance": 1e-11}
    masses = loops.Masses(0.08, 0.3)
    high = loops.split_even_loops(
        staggered, deflation, at=at, deflated_noise=True, masses=masses, **grouped(**full)
    )
    both = low_modes.with_low_modes(high, low, at=at, masses=masses)
    heavy = loops.exact_loops(
        staggered,
        at=at,
        **grouped(**{**SOLVE, "mass": 0.3, "precision": "double-single", "tolerance": 1e-11}),
    )
    for name in ("current", "condensate"):
        found, light, strange = getattr(both, name)[0, 0], getattr(exact, name), getattr(heavy, name)
        expected = np.stack([light, strange, light - strange])
        assert np.abs(found - expected).max() < 1e-9 * np.abs(expected).max()


def test_a_deflation_may_speed_up_the_solves_of_plain_noise(staggered, deflation):
    """The same loops in fewer iterations; deflated noise gives others."""
    at, deflated_at = (At(config="chain.3", noise=(0, 1)) for _ in range(2))
    options = {**SOLVE, **NOISE, "mass": 0.005, "tolerance": 1e-10, "solver": "batched_cg", "block": 1}
    options = grouped(**options)
    plain = loops.current_loops(staggered, at=at, **options)
    same = loops.current_loops(staggered, deflation, at=deflated_at, **options)
    assert np.allclose(same.current, plain.current, rtol=0, atol=1e-6)
    assert max(deflated_at.statistics["iterations"]) < 0.8 * max(at.statistics["iterations"])
    other = loops.current_loops(staggered, deflation, at=deflated_at, deflated_noise=True, **options)
    assert np.abs(other.current - plain.current).max() > 0.01
