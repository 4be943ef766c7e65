"""The stages on a CUDA device give the CPU's loops from the same configuration and the same noise."""

from functools import cache

import numpy as np
import pytest
from settings import grouped

from pipeline import At
from stages.ensemble import staggered_operator as operators
from stages.ensemble.configuration import GaugeLinks, heatbath_configuration
from stages.loops import current_loops as loops
from stages.loops import low_mode_loops as low_modes
from stages.lqcd.dirac.staggered import SquaredDslash
from stages.lqcd.gauge.heatbath import thermalised
from stages.lqcd.kernels.dispatch import array_module, as_numpy
from stages.lqcd.lattice.geometry import Lattice
from stages.lqcd.solvers.deflation import StaggeredSpace
from stages.lqcd.solvers.space import Space

pytestmark = pytest.mark.gpu
LATTICE = Lattice((6, 4, 2, 8))
OPTIONS = {"hisq": {"naik_epsilon": 0.0}, "asqtad": {"u0": 0.88}, "naive": {}}


@cache
def gauge():
    return GaugeLinks(thermalised(LATTICE, 5.9, 12, "gpu.1", 6, 1), np.array(LATTICE.extents))


def measure(backend, action="hisq", exact=False, **options):
    at = At(config="gpu.1", noise=(2, 3), backend=backend)
    dslash = operators.ACTIONS[action].stage(gauge(), at=at, boundary="antiperiodic", **OPTIONS[action])
    settings = {"mass": 0.06, "tolerance": 1e-11, "precision": "double-single", **options}
    if exact:
        return loops.exact_loops(dslash, at=at, **grouped(**settings))
    settings |= {"seed": 44, "dilution": {"displacement": 2}, "noise": options.get("noise", "z2")}
    return loops.current_loops(dslash, at=at, **grouped(**settings))


@pytest.mark.parametrize("noise", ["z2", "z4", "u1", "gaussian"])
@pytest.mark.parametrize("solver", ["block_cgrq", "batched_cg"])
def test_stochastic_loops(noise, solver):
    host, device = (measure(backend, noise=noise, solver=solver) for backend in ("cpu", "cuda"))
    assert isinstance(device.current, np.ndarray)
    assert np.allclose(device.current, host.current, rtol=0, atol=1e-7)
    assert np.allclose(device.condensate, host.condensate, rtol=1e-8)


@pytest.mark.parametrize("choice", ["thin", "smeared", "fat"])
def test_exact_loops(choice):
    host, device = (measure(backend, exact=True, current_links=choice) for backend in ("cpu", "cuda"))
    assert np.allclose(device.current, host.current, rtol=0, atol=1e-8)
    assert np.allclose(device.condensate, host.condensate, rtol=1e-9)


def test_exact_loops_of_asqtad():
    host, device = (measure(backend, action="asqtad", exact=True) for backend in ("cpu", "cuda"))
    assert np.allclose(device.current, host.current, rtol=0, atol=1e-8)


def test_naive_charge_is_conserved_on_the_device():
    result = measure("cuda", action="naive", exact=True)
    assert np.ptp(result.current[3]) < 1e-8


def test_heat_bath_stage_hands_over_links_of_the_host():
    at = At(config="gpu.2", backend="cuda")
    options = {"extents": (4, 4, 4, 8), "beta": 5.9, "seed": 7, "sweeps": 5, "overrelaxation": 2}
    links, again = (heatbath_configuration(at=at, **options).links for _ in range(2))
    assert isinstance(links, np.ndarray)
    assert np.array_equal(links, again)
    assert 0.4 < at.statistics["plaquette"] < 0.7


@pytest.mark.parametrize("single", [False, True])
def test_low_modes_and_deflated_split_even_loops(single):
    """Low part, remainder and difference of the CPU from eigenvectors of either precision."""
    masses = loops.Masses(0.02, 0.2)
    parts = []
    for backend in ("cpu", "cuda"):
        at = At(config="gpu.1", noise=(2, 3), probe=(0, 1), backend=backend)
        dslash = operators.hisq_operator(gauge(), at=at, boundary="antiperiodic", naik_epsilon=0.0)
        B = SquaredDslash(dslash, 0)
        xp = array_module(dslash.links.thin())
        identity = xp.eye(3 * LATTICE.half_volume, dtype=complex)
        columns = [
            B.apply(xp.ascontiguousarray(block.reshape(*B.shape, -1))) for block in blocks_of(identity)
        ]
        matrix = as_numpy(xp.concatenate(columns, axis=-1)).reshape(identity.shape)
        vectors = np.linalg.eigh(matrix)[1][:, :20].reshape(*B.shape, 20)
        vectors = xp.asarray(np.ascontiguousarray(vectors, np.complex64 if single else np.complex128))
        space = StaggeredSpace(dslash, Space.measured(B, vectors))
        low = low_modes.low_mode_loops(space, at=at)
        high = loops.split_even_loops(
            dslash,
            space,
            at=at,
            deflated_noise=True,
            masses=masses,
            **grouped(tolerance=1e-11, seed=44, noise="z2"),
        )
        parts.append((low_modes.low_flavours(low, masses), high))
    for host, device in zip(*parts, strict=True):
        for one, two in zip(host, device, strict=True):
            assert isinstance(two, np.ndarray)
            assert np.allclose(two, one, rtol=0, atol=(1e-4 if single else 1e-6) * np.abs(one).max())


def blocks_of(identity):
    """Columns in blocks that the kernels take."""
    return [identity[:, first : first + 32] for first in range(0, identity.shape[1], 32)]
