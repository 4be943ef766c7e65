"""Correlators of the public 4^4 chain of sLapH-contractions, from its eigenvectors, noise and perambulators.

A quark is light or strange, each with six noise vectors; sources are blocks of two time slices. The diagrams
are those of its code: Q0 = rho^H G Phi rho, Q1 = rho^H G Phi c, Q2 = (gamma5 c gamma5)^H G Phi c on a slice,
with c the perambulators and Phi = V^H e^{-ipx} V; the mean is over different noise for each line.
"""

import re
from collections.abc import Callable
from functools import cache
from itertools import permutations
from pathlib import Path
from typing import NamedTuple

import h5py
import numpy as np
import pytest
from numpy.typing import NDArray

from stages.lqcd.dirac.wilson import WilsonDslash, WilsonOperator, mass_of_kappa
from stages.lqcd.dirac.wilson_schur import WilsonSchur
from stages.lqcd.distillation.elementals import elementals
from stages.lqcd.distillation.insertions import Insertions
from stages.lqcd.distillation.projection import sink_projections
from stages.lqcd.gauge.wilson_links import wilson_links
from stages.lqcd.kernels import slice_products
from stages.lqcd.kernels.gamma import GAMMA5, tmlqcd_spinors
from stages.lqcd.lattice.formats import read_gauge
from stages.lqcd.lattice.geometry import Lattice
from stages.lqcd.solvers.even_odd import EvenOdd
from stages.lqcd.solvers.named import Solve
from stages.lqcd.spectroscopy.distilled_mesons import (
    ElementalTable,
    QuarkLine,
    dirac_correlators,
    stochastic_pairs,
)
from stages.lqcd.spectroscopy.tmlqcd_files import SlaphFiles

pytestmark = pytest.mark.usefixtures("reference_kernels")

LATTICE, VECTORS, NOISE = Lattice((4, 4, 4, 4)), 16, 6
FILES = SlaphFiles(LATTICE, VECTORS, (2, 4, 2))
QUARKS = {"u": range(NOISE), "s": range(NOISE, 2 * NOISE)}
MOMENTA = ((0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (-1, 0, 0), (0, -1, 0), (0, 0, -1))
Operator = tuple[tuple[int, int, int], int]
"""A momentum and the number of a matrix."""


def matrices() -> list[NDArray]:
    """The sixteen of sLapH-contractions, which it takes for spinors of tmLQCD, for ours."""
    blocks = (np.eye(2), np.array([[0, 1j], [1j, 0]]), np.array([[0, 1], [-1, 0]]), np.diag([1j, -1j]))
    upper, g5 = np.array([[0, 1], [0, 0]]), np.diag([1, 1, -1, -1])
    g = [np.kron(upper, each) + np.kron(upper.T, each.conj().T) for each in blocks]
    products = [g[0] @ each for each in g[1:]]
    sixteen = [*g, np.eye(4), g5, *(each @ g5 for each in g), *products, *(each @ g5 for each in products)]
    return [tmlqcd_spinors(tmlqcd_spinors(each, 0), 1) for each in sixteen]


class Chain(NamedTuple):
    """Noise ``[line, time, spin, vector, column]``, cut to subsets, and projections, source before column."""

    folder: Path
    vectors: NDArray
    rho: NDArray
    c: NDArray
    phi: NDArray
    """``[time, momentum, i, j]``."""
    factor: Callable[..., NDArray]
    """Q0, Q1 or Q2 of an operator on a slice, ``[line, line, column, column]``."""


@pytest.fixture(scope="module")
def chain(reference_data: Path) -> Chain:
    folder = reference_data / "slaph"
    if not (folder / "C3c_cnfg1000.h5").is_file():
        pytest.skip(f"the whole chain of sLapH-contractions is not in {folder}: see docs/reference_data.md")
    names = [f"{quark}{n:02}" for quark in ("", "s") for n in range(NOISE)]
    noise = np.array([FILES.read("noise", folder / f"rnd{name}") for name in names])
    perambulators = np.array([FILES.read("perambulator", folder / f"peram{name}") for name in names])
    vectors = FILES.read("eigenvectors", folder / "eigenvectors.1000")
    phi = elementals(vectors, None, Insertions(LATTICE, MOMENTA, ("",)), np, 1 << 30)[:, :, 0]
    column = 2 * np.arange(4)[:, None] + np.arange(VECTORS) % 2
    rho = noise[..., None] * (column[..., None] == np.arange(8))
    c, G = np.moveaxis(perambulators.reshape(*perambulators.shape[:5], 8), 1, -2), matrices()

    @cache
    def factor(kind: str, operator: Operator, t: int, block: int, other: int) -> NDArray:
        momentum, number = operator
        left = rho[:, t] if kind in ("Q0", "Q1") else c[:, t, :, :, block] * np.diag(GAMMA5)[:, None, None]
        right = rho[:, t] if kind == "Q0" else c[:, t, :, :, other]
        gamma = G[number] if kind == "Q0" else G[number].T
        vertex = phi[t, MOMENTA.index(tuple(-p for p in momentum))]
        factors = np.einsum("lsia,st,ij,rtjb->lrab", left.conj(), gamma, vertex, right, optimize=True)
        return np.diag(np.kron(GAMMA5, np.eye(2)))[:, None] * factors if kind == "Q2" else factors

    return Chain(folder, vectors, rho, c, phi, factor)


def two_lines(A: NDArray, B: NDArray, quarks: str) -> complex:
    lines = [(i, j) for i in QUARKS[quarks[0]] for j in QUARKS[quarks[1]] if i != j]
    return np.mean([np.sum(A[i, j] * B[j, i].T) for i, j in lines])


def three_lines(A: NDArray, B: NDArray, C: NDArray) -> complex:
    return np.mean([np.trace(A[i, j] @ B[j, k] @ C[k, i]) for i, j, k in permutations(range(NOISE), 3)])


DIAGRAMS: dict[str, Callable[..., complex]] = {
    "C2c": lambda Q, quarks, at, to, one, other: two_lines(
        Q("Q0", other, to, 0, 0), Q("Q2", one, at, to // 2, to // 2), quarks
    ),
    "C20": lambda Q, quarks, at, to, one, other: two_lines(
        Q("Q1", one, at, 0, to // 2), Q("Q1", other, to, 0, at // 2), quarks
    ),
    "C3c": lambda Q, quarks, at, to, one, other, third: three_lines(
        Q("Q0", third, at, 0, 0), Q("Q2", one, at, at // 2, to // 2), Q("Q1", other, to, 0, at // 2)
    ),
}
"""By factors Q, quarks, the slices of the source and of the sink, and operators."""


@pytest.mark.parametrize(("name", "number"), [("C2c", 28), ("C20", 77), ("C3c", 76)])
def test_correlators_of_the_chain(chain: Chain, name: str, number: int) -> None:
    with h5py.File(chain.folder / f"{name}_cnfg1000.h5") as file:
        given = {each: file[each]["re"] + 1j * file[each]["im"] for each in file}
    assert len(given) == number
    for label, expected in given.items():
        found, quarks = np.zeros(4, complex), label.split("_")[1]
        operators = re.findall(r"_p(-?\d)(-?\d)(-?\d)\.d000\.g(\d+)", label)
        parsed = [((int(x), int(y), int(z)), int(gamma)) for x, y, z, gamma in operators]
        for at, to in np.ndindex(4, 4):
            found[(at - to) % 4] += DIAGRAMS[name](chain.factor, quarks, at, to, *parsed) / 4
        assert np.abs(found - expected).max() < 1e-12 * np.abs(expected).max(), label


@pytest.mark.parametrize(("quark", "two_kappa_mu"), [("u", 0.0177), ("s", 0.177)])
def test_perambulators_of_the_chain(chain: Chain, quark: str, two_kappa_mu: float) -> None:
    """Of all noise vectors, by this library's operator and solver."""
    links = read_gauge(chain.folder / "conf.1000").links
    made = wilson_links(links, LATTICE, boundary="periodic", csw=1.0, theta=(0, 0, 0, 1.0))
    M = WilsonOperator(WilsonDslash(made), mass_of_kappa(0.177), two_kappa_mu / (2 * 0.177))
    solver = EvenOdd(Solve("block_cgrq", 1e-13, "double-single", 500).of_regular(None), WilsonSchur)
    for n in QUARKS[quark]:
        sources = np.zeros((2, 4, LATTICE.sites_per_slice, 4, 3, 2, 8), complex)
        for t in range(4):
            slice_products.put_sources(chain.vectors[t], chain.rho[n, t], sources[:, t, ..., t // 2, :])
        solution = solver.solve(M, sources.reshape(*M.shape, 16)).x
        found = sink_projections(chain.vectors, solution, np, 1 << 30).reshape(4, 4, VECTORS, 2, 8)
        assert np.abs(found - chain.c[n]).max() < 1e-10


def test_pions_of_the_chain_by_this_library(chain: Chain) -> None:
    """The charged one: of tmLQCD's quark and the adjoint of another line of it."""
    table = ElementalTable(chain.phi[:, :, None], MOMENTA, ("",), LATTICE.extents, VECTORS)
    found = np.zeros((len(MOMENTA), 4), complex)
    for time, (i, j) in ((t, pair) for t in range(4) for pair in permutations(range(NOISE), 2)):
        lines = [QuarkLine(chain.c[n, ..., time // 2, :], chain.rho[n, time]) for n in (i, j)]
        pairs = stochastic_pairs(*lines, table, time, MOMENTA, [""])
        found += [dirac_correlators(each[:, 0, 0], ["Gamma5"])[0] / (4 * 30) for each in pairs]
    with h5py.File(chain.folder / "C2c_cnfg1000.h5") as file:
        for momentum, each in zip(MOMENTA, found, strict=True):
            here, there = ("".join(str(sign * p) for p in momentum) for sign in (1, -1))
            given = file[f"C2c_uu_p{here}.d000.g5_p{there}.d000.g5"]
            expected = given["re"] + 1j * given["im"]
            assert np.abs(each - expected).max() < 1e-12 * np.abs(expected).max()
