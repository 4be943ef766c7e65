"""The library as a notebook has it: the page's example, one source, what is refused in words."""

import math
import pickle
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import quarkline as ql
from stages.lqcd.kernels.dispatch import as_numpy
from stages.lqcd.lattice.formats.gauge_file import GaugeField
from stages.lqcd.lattice.geometry import Lattice
from stages.lqcd.multigrid.levels import default_levels
from stages.lqcd.notebook import MULTIGRID_LEVEL

PAGE = Path(__file__).parents[2] / "docs" / "notebook.md"


@pytest.fixture(scope="module")
def field() -> GaugeField:
    """As `read_gauge` gives it, of a few sweeps on 4^3 x 8."""
    lattice = Lattice((4, 4, 4, 8))
    links = ql.thermalised(lattice, 6.0, 5, "notebook", sweeps=20, overrelaxation=1, xp=np)
    return GaugeField(Path("conf.ildg"), "ILDG", lattice, links, {}, (), ())


@pytest.fixture(scope="module", params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def quarks(field: GaugeField, request: pytest.FixtureRequest) -> Any:
    return ql.hisq(field, boundary="antiperiodic", naik_epsilon=0.0, backend=request.param)


def few_vectors(lattice: Lattice) -> list[dict[str, Any]]:
    """The levels of `ql.multigrid` with eight vectors, whose kernels are those of other tests."""
    return [MULTIGRID_LEVEL | level | {"vectors": 8} for level in default_levels(lattice)]


def test_the_example_of_the_page(field: GaugeField, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ql, "read_gauge", lambda name: field, raising=False)
    monkeypatch.setattr(ql, "multigrid", partial(ql.multigrid, levels=few_vectors(field.lattice)))
    point_source = ql.point_source
    monkeypatch.setattr(ql, "point_source", lambda *place: point_source(*place)[..., :3].copy())
    (example,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.M | re.S)
    found: dict[str, Any] = {}
    assert "range(12)" in example
    exec(example.replace("range(12)", "range(3)"), found)  # kernels for three are those of other tests
    solution, deflated = found["solution"], found["deflated"](found["A"], found["b"])
    assert solution.residual.max() <= 1e-10 and solution.residual.shape == (3,)
    assert deflated.iterations < 0.8 * ql.block_cg(1e-10)(found["A"], found["b"]).iterations
    for M, x, b in (("M", "propagator", "source"), ("W", "quark", "point")):
        missed = np.linalg.norm(found[M] @ found[x] - found[b]) / np.linalg.norm(found[b])
        assert missed < 1e-8


def test_the_page_lists_what_is_offered() -> None:
    listed = re.findall(r"`(\w+)`", "\n".join(re.findall(r"^\| `.*", PAGE.read_text(), re.M)))
    assert sorted(listed) == sorted(ql.__all__)
    described = re.findall(r"^::: [\w.]+\.(\w+)$", PAGE.with_name("api.md").read_text(), re.M)
    assert set(ql.__all__) <= set(described)


@pytest.mark.parametrize("name", ["normal", "full"])
@pytest.mark.parametrize("precision", ["double", "double-single"])
def test_one_source_comes_back_as_it_went(quarks: Any, name: str, precision: Any) -> None:
    A = getattr(quarks, name)(0.1)
    b = np.random.default_rng(3).normal(size=A.shape) + 0j
    solver = ql.cg(1e-10, precision)
    one, same = solver(A, b), solver(A, np.stack([b, 2 * b], -1))
    assert one.x.shape == A.shape and same.x.shape == (*A.shape, 2)
    assert one.residual.shape == (1,) and one.residual.max() < 1e-8
    x = as_numpy(one.x)
    assert np.allclose(x, as_numpy(same.x)[..., 0], rtol=0, atol=1e-8 * abs(x).max())
    assert np.linalg.norm(as_numpy(A @ b) - as_numpy(A @ np.stack([b], -1))[..., 0]) == 0


def test_modes_deflate_every_mass_and_both_kinds_of_operators(quarks: Any) -> None:
    low = ql.lowest(quarks.normal(0.3), 16)
    assert len(low) == 16
    solver = ql.cg(1e-8)
    for A in (quarks.normal(0.05), quarks.full(0.05)):
        b = np.random.default_rng(4).normal(size=(*A.shape, 2)) + 0j
        assert low.deflate(solver)(A, b).iterations < 0.9 * solver(A, b).iterations


def test_operators_print_in_a_line(quarks: Any, field: GaugeField) -> None:
    assert repr(quarks) == "HISQ on 4x4x4x8"
    assert re.fullmatch(r"4 m\^2 - D\^2, HISQ, m = 0.1 on 4x4x4x8 \((CPU|GPU)\)", repr(quarks.normal(0.1)))
    wilson = ql.wilson_clover(field, -0.2, boundary="antiperiodic", csw=1.0)
    assert repr(wilson) == "Wilson-clover, mass = -0.2 on 4x4x4x8 (CPU)"
    assert all(len(repr(each)) < 200 for each in (ql.cg(1e-8), ql.lowest(quarks.normal(0.1), 4)))


def test_what_does_not_fit_is_refused_in_words(field: GaugeField) -> None:
    D = ql.hisq(field, boundary="antiperiodic", naik_epsilon=0.0)
    A, W = D.normal(0.1), ql.wilson_clover(field, -0.2, boundary="antiperiodic")
    b = np.ones(A.shape, complex)
    for call, words in (
        (lambda: ql.cg(1e-8, "double-half")(A, b), "kernels on a GPU only.*give precision='double-single'"),
        (
            lambda: ql.cg(1e-8)(A, b[:5]),
            r"is \[256, 3\] or, of N right-hand sides, \[256, 3, N\]; got \[5, 3\]",
        ),
        (lambda: ql.bicgstab(1e-8)(A, b), "solver must be one of block_cgrq, batched_cg, got 'bicgstab'"),
        (lambda: ql.multigrid(A, 1e-8), "multigrid is for Wilson quarks"),
        (lambda: ql.lowest(W, 4), "staggered normal operators"),
        (lambda: ql.lowest(A, 4).deflate(ql.cg(1e-8))(W, np.ones(W.shape)), "deflate no Wilson operator"),
        (lambda: ql.cg(1e-8, "half")(A, b), "precision must be one of"),
        (lambda: D.normal(-0.1), "mass of a staggered solve must be positive"),
        (lambda: D.full(0), "mass of a staggered solve must be positive"),
        (lambda: D.full(math.nan), "mass must be a finite real number, got nan"),
        (lambda: D.full(-1e200), "mass = -1e.200 has squares and products beyond the range"),
        (lambda: D.normal("0.05"), "mass must be a finite real number, got '0.05'"),
        (lambda: ql.wilson_clover(field, 1j, boundary="periodic"), "mass must be a finite real number"),
        (lambda: ql.wilson_clover(field, 0.1, boundary="periodic", csw=math.nan), "csw must be a finite"),
        (lambda: ql.wilson_clover(field, 0.1, boundary="periodic", mu=10**400), "mu must be a finite real n"),
        (
            lambda: ql.wilson_clover(field, 0.1, boundary="periodic", theta=1),
            "must be four numbers, .* got 1",
        ),
        (lambda: ql.wilson_clover(field, 0.1, boundary="periodic", theta=[0, 1]), r"four .* got \[0, 1\]"),
        (lambda: ql.wilson_clover(field, 0.1, boundary="periodic", theta="0001"), "must be four .* '0001'"),
        (lambda: ql.wilson_clover(field, 0, boundary="periodic", theta=(0, 0, 0, math.inf)), "theta .* inf"),
        (lambda: ql.hisq(field, boundary="periodic", naik_epsilon=math.nan), "naik_epsilon must be a finite"),
        (lambda: ql.asqtad(field, boundary="periodic", u0="0.8"), "u0 must be a finite"),
        (lambda: ql.hisq(field, boundary="periodic", naik_epsilon=0.0, backend="gpu"), "one of cpu, cuda"),
        (
            lambda: ql.hisq(field.links, boundary="periodic", naik_epsilon=0.0),
            "as of read_gauge.*array",
        ),
        (lambda: ql.cg(1e-8)(A, b.tolist()), "array of numbers, got list: give np.asarray"),
        (lambda: ql.cg(1e-8)(A, b.astype(str)), "array of numbers, got an array of <U"),
        (lambda: ql.cg(1e-8)(A, np.ma.masked_array(b)), "array of numbers"),
        (lambda: A @ 3, "array of numbers, got int"),
        (lambda: ql.cg(1e-8)(A, b, x0=b[:5]), r"of N right-hand sides, .*got \[5, 3\]"),
        (lambda: ql.cg(1e-8)(A, b, x0=np.stack([b, b], -1)), "x0 must have the shape of b"),
        (lambda: ql.cg(1e-8)(A, b, on_failure="retrun"), "on_failure must be 'raise' or 'return'"),
        (lambda: ql.cg(1e-8)(D, b), "takes an operator first, got Staggered: give D.normal"),
        (lambda: ql.cg(1e-8)(b, A), "takes an operator first, got an array of complex128"),
        (lambda: ql.cg("1e-8"), "tolerance must be a finite real number, got '1e-8'"),
        (lambda: ql.cg(0), "tolerance must lie between 0 and 1"),
        (lambda: ql.cg(1e-8, max_iterations=0.5), "max_iterations must be a whole number"),
        (lambda: ql.multigrid(1e-8, W), "multigrid takes an operator first, got float"),
        (
            lambda: ql.multigrid(W, 1e-8, levels=[{"agregate": [2, 2, 2, 2]}]),
            "level of multigrid has",
        ),
        (lambda: ql.lowest(D, 4), "lowest takes an operator first, got Staggered"),
        (lambda: ql.lowest(A, 4.5), "eigenvectors must be a whole number .*, got 4.5"),
        (lambda: ql.lowest(A, 4, blok=8), "lowest has no option 'blok': did you mean 'block'"),
        (lambda: ql.lowest(A, 4, on_failure=""), "no option 'on_failure'; known: block, max_restarts, seed"),
        (lambda: ql.lowest(A, 4).deflate(1e-8), "deflate takes a solver"),
        (lambda: ql.bootstrap_samples([], 3, 1), "a bootstrap needs configurations"),
        (lambda: ql.bootstrap_samples([1.0], 0, 1), "a bootstrap needs configurations"),
        (lambda: ql.Lattice((4.5, 4, 4, 4)), "four even numbers"),
        (lambda: ql.noise_vectors(field.lattice, 2, "a", 1, [0]), "parity must be 0"),
    ):
        with pytest.raises(ql.InputError, match=words):
            call()
    with pytest.raises(AttributeError, match="module 'quarkline' has no attribute 'nothing'"):
        _ = ql.nothing


def test_a_guess_has_the_shape_of_the_source(quarks: Any) -> None:
    rng = np.random.default_rng(11)
    for A in (quarks.normal(0.2), quarks.full(0.2)):
        b = rng.normal(size=A.shape).astype(np.float32)
        solver = ql.cg(1e-10)
        x = as_numpy(solver(A, b).x)
        assert solver(A, b, x0=x).iterations <= 2 < solver(A, b, x0=np.zeros(A.shape)).iterations
    with pytest.raises(ql.NotConverged, match="raise max_iterations"):
        ql.cg(1e-10, max_iterations=3)(A, b)


def test_links_and_their_lattice_are_a_field(field: GaugeField, quarks: Any) -> None:
    smeared = ql.stout_links(field.links, field.lattice, 0.1, 1)
    A = ql.hisq((smeared, field.lattice), boundary="antiperiodic", naik_epsilon=0.0).normal(0.2)
    b = np.ones(A.shape)
    same = ql.hisq((field.links, field.lattice), boundary="antiperiodic", naik_epsilon=0.0).normal(0.2)
    assert np.array_equal(same @ b, as_numpy(quarks.normal(0.2) @ b)) or quarks.normal(0.2).xp is not np
    assert not np.array_equal(A @ b, same @ b)


def test_threads_wait_for_each_other(quarks: Any) -> None:
    A = quarks.normal(0.1)
    low = ql.lowest(A, 9)
    solvers = (ql.cg(1e-10), low.deflate(ql.block_cg(1e-10)))
    sources = [np.random.default_rng(n).normal(size=(*A.shape, 3)) for n in (1, 3)]
    expected = [as_numpy(solver(A, b).x) for solver in solvers for b in sources]

    def solved(_: int) -> bool:
        found = [as_numpy(solver(A, b).x) for solver in solvers for b in sources]
        return all(map(np.array_equal, found, expected))

    with ThreadPoolExecutor(3) as threads:
        assert all(threads.map(solved, range(6)))


def test_objects_are_told_apart_kept_and_shown(quarks: Any, field: GaugeField) -> None:
    A = quarks.normal(0.1)
    deflated = ql.lowest(A, 4).deflate(ql.cg(1e-8))
    assert quarks == quarks and quarks != ql.hisq(field, boundary="periodic", naik_epsilon=0.0)
    assert len({quarks, A, deflated, deflated.space}) == 4
    assert repr(deflated.space) == "4 low modes on 4x4x4x8" and "4 low modes" in repr(deflated)
    assert len(repr(field)) < 300
    with pytest.raises(TypeError, match="unsupported operand"):
        np.ones(A.shape) @ A
    if A.xp is np:
        b = np.ones(A.shape)
        there, solver = pickle.loads(pickle.dumps((A, deflated)))
        assert np.array_equal(solver(there, b).x, deflated(A, b).x)


def test_a_backend_that_is_not_there_is_one_sentence(field: GaugeField, monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(is_available=lambda: False))
    with pytest.raises(ql.InputError, match="needs a CUDA device and its driver"):
        ql.hisq(field, boundary="antiperiodic", naik_epsilon=0.0, backend="cuda")
