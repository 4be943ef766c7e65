"""s-step conjugate gradients with and without their ingredients, on model problems: python -m ...sstep_study.

Each run is the recurrence alone (`stages.lqcd.solvers.sstep.recurrence`), from x = 0, with the Gram matrix in
working or in twice working precision and with or without replaced residuals; its true residual b - A x is
computed in double after every block. A line gives the iterations to the first true residual below a level,
and the least one.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from script import PrintedTable
from sstep_plots import LEVELS, plot_all
from stages.lqcd.kernels import block_blas, powers
from stages.lqcd.kernels.dispatch import array_module_of, as_numpy
from stages.lqcd.kernels.fields import zeros_like
from stages.lqcd.solvers.recurrence import BreakdownError
from stages.lqcd.solvers.sstep.block import Ingredients
from stages.lqcd.solvers.sstep.polynomials import BASES, MONOMIAL, polynomials
from stages.lqcd.solvers.sstep.recurrence import Log, SStepRecurrence

DTYPES: dict[str, np.dtype[Any]] = {
    "single": np.dtype(np.complex64),
    "double": np.dtype(np.complex128),
}
LONGEST = 2.0
"""Runs end after so many times the iterations of conjugate gradients."""
REST = 60
"""Or once the least true residual has not halved for so many iterations, or quarter as many as were made."""


@dataclass(frozen=True)
class Model:
    """A Hermitian positive definite operator on fields ``[n, N]`` whose extreme eigenvalues are known."""

    low: float
    high: float
    dtype: np.dtype
    diagonal: NDArray[Any] | None = None
    side: int = 0
    """Of the cube on which the Laplacian with Dirichlet boundaries acts, where it is no diagonal matrix."""
    xp: ModuleType = np

    hermitian = True
    positive_definite = True

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.side**3,) if self.diagonal is None else self.diagonal.shape

    @property
    def adjoint(self) -> Model:
        return self

    def astype(self, dtype: Any) -> Model:
        diagonal = None if self.diagonal is None else self.diagonal.astype(np.dtype(dtype).type(0).real.dtype)
        return dataclasses.replace(self, dtype=np.dtype(dtype), diagonal=diagonal)

    def apply(self, x: NDArray[Any], out: NDArray[Any] | None = None) -> NDArray[Any]:
        out = self.xp.empty_like(x) if out is None else out
        if self.diagonal is not None:
            return self.xp.multiply(x, self.diagonal[:, None], out=out)
        if self.xp is not np:
            return _stencil()(x, self.side, self.side**2, x.shape[-1], out)
        cube = 3 * (self.side,)
        field, result = x.reshape(*cube, -1), out.reshape(*cube, -1)
        self.xp.multiply(field, 6, out=result)
        for axis in range(3):
            ahead, behind = (tuple(_range(axis, each)) for each in (slice(1, None), slice(None, -1)))
            result[ahead] -= field[behind]
            result[behind] -= field[ahead]
        return out


@cache
def _stencil() -> Any:
    """The Laplacian of fields of a device in one pass."""
    import cupy

    return cupy.ElementwiseKernel(
        "raw T x, int64 side, int64 area, int64 n",
        "T out",
        """
        const long long at = i / n, place[3] = {at / area, at / side % side, at % side};
        const long long step[3] = {area * n, side * n, n};
        T sum = T(6) * x[i];
        for (int axis = 0; axis < 3; axis++) {
            if (place[axis] > 0) sum -= x[i - step[axis]];
            if (place[axis] + 1 < side) sum -= x[i + step[axis]];
        }
        out = sum;
        """,
        "laplacian",
    )


def _range(axis: int, part: slice) -> Iterator[slice]:
    return (part if each == axis else slice(None) for each in range(3))


def laplacian(side: int, xp: ModuleType = np) -> Model:
    """The 7-point Laplacian with Dirichlet boundaries on side^3 points."""
    angle = np.pi / 2 / (side + 1)
    return Model(12 * np.sin(angle) ** 2, 12 * np.cos(angle) ** 2, DTYPES["double"], None, side, xp)


def strakos(size: int, low: float, rho: float, xp: ModuleType = np) -> Model:
    """lambda_i = low + (i - 1) / (n - 1) (1 - low) rho^(n - i) (Z. Strakos, LAA 154 (1991) 535)."""
    i = xp.arange(1, size + 1)
    values = low + (i - 1) / (size - 1) * (1 - low) * rho ** (size - i)
    return Model(low, 1.0, DTYPES["double"], values, 0, xp)


@dataclass
class Run:
    """True and recurrence's residuals relative to |b| after each block, and what stopped it."""

    iterations: list[int]
    true: list[float]
    own: list[float]
    replaced: int = 0
    end: str = "length"

    def rests(self) -> bool:
        """True if the true residual does not fall any more."""
        since = self.iterations[-1] - max(REST, self.iterations[-1] // 4)
        before = [r for i, r in zip(self.iterations, self.true, strict=True) if i <= since]
        return bool(before) and min(self.true) > 0.5 * min(before)

    def to(self, level: float) -> int | None:
        """Iterations to the first true residual below a level."""
        return next((i for i, r in zip(self.iterations, self.true, strict=True) if r <= level), None)


def study(
    model: Model, b: NDArray[Any], s: int, basis: str, higher: bool, replace: bool, longest: int
) -> Run:
    """A run in the precision of b."""
    A, double = model.astype(b.dtype), model.astype(np.complex128)
    single = b.dtype == np.complex64
    precision = (powers.DOUBLE if single else powers.DOUBLED) if higher else powers.WORKING
    ritz = (model.high + model.low) / 2 + (model.high - model.low) / 2 * np.cos(
        np.pi * (np.arange(33) / 32 - 1)
    )
    parts = Ingredients(polynomials(basis, s, ritz), s, precision, model.high, replace, False)
    target, run, done = np.zeros(1), Run([], [], []), 0
    z, exact = zeros_like(b), b.astype(np.complex128)
    size = _norm(exact)
    recurrence = SStepRecurrence(A, b, target, None, parts, Log())
    while done < longest:
        try:
            for _ in range(s):
                recurrence.start()
                own = float(recurrence.estimate()[0])
                done += 1
                if wanted := recurrence.full:
                    break
        except BreakdownError as error:
            run.end = str(error)
            break
        x = z + recurrence.correction
        run.iterations.append(done)
        run.own.append(own / size)
        run.true.append(_norm(exact - double.apply(x.astype(np.complex128))) / size)
        if wanted:
            z, run.replaced = x, run.replaced + 1
            recurrence.replace(b - A.apply(z), target)
        if run.rests():
            run.end = "accuracy"
            break
    return run


def _norm(field: NDArray[Any]) -> float:
    return float(np.sqrt(as_numpy(block_blas.norms2(field))[0]))


def compiled_ahead(given: argparse.Namespace) -> None:
    """Compile the kernels of a device, many at a time."""
    from stages.lqcd.kernels.cuda import powers as on_device
    from stages.lqcd.kernels.cuda.compile import compile_all

    launches = []
    for s, precision in product(sorted({1, *given.s}, reverse=True), given.precision):
        kind, rows = DTYPES[precision], given.side**3 or given.size
        single = precision == "single"
        launches += [on_device.gram_launch(s, 1, kind, rows, signs) for signs in (False, True)]
        launches.append(on_device.update_launch(s, 1, kind, rows))
        exact = powers.WORKING if single else powers.DOUBLED
        launches.append(on_device.exact_gram_launch(s, 1, kind, rows, exact))
        launches += [on_device.gram_sum_launch(s, 1, doubled) for doubled in (False, True)]
        launches += [on_device.coordinates_launch(s, 1, doubled) for doubled in {False, not single}]
    compile_all(list(dict.fromkeys(launches)))


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables; with --write also the histories as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--side", type=int, default=100, help="of the cube of the Laplacian")
    parser.add_argument("--rho", type=float, nargs="+", default=[], help="of diagonal matrices, in (0, 1)")
    parser.add_argument("--size", type=int, default=1000, help="of diagonal matrices")
    parser.add_argument(
        "--low", type=float, default=1e-3, help="least eigenvalue of diagonal matrices; the largest is 1"
    )
    parser.add_argument("-s", type=int, nargs="+", default=list(range(1, 17)))
    parser.add_argument("--basis", nargs="+", choices=BASES, default=list(BASES))
    parser.add_argument("--precision", nargs="+", choices=list(DTYPES), default=list(DTYPES))
    parser.add_argument("--backend", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--both", action="store_true", help="only with both ingredients")
    parser.add_argument("--write", type=Path, help="histories, a JSON file")
    parser.add_argument("--plot", type=Path, default=Path("sstep.svg"), help="histories; -s.svg: against s")
    parser.add_argument("--read", type=Path, nargs="+", help="plot histories of such files, compute nothing")
    given = parser.parse_args(arguments)
    if given.read:
        plot_all([run for file in given.read for run in json.loads(file.read_text())], given.plot)
        return
    xp = array_module_of(given.backend)
    if given.backend == "cuda":
        compiled_ahead(given)
    models = {f"Laplacian {given.side}^3": laplacian(given.side, xp)} if given.side else {}
    models |= {f"diagonal, rho = {rho}": strakos(given.size, given.low, rho, xp) for rho in given.rho}
    histories: list[dict[str, Any]] = []
    try:
        for (name, model), precision in product(models.items(), given.precision):
            compare(given, name, model, precision, histories)
    finally:
        if given.write:
            given.write.write_text(json.dumps(histories))
    plot_all(histories, given.plot)


def compare(
    given: argparse.Namespace, name: str, model: Model, precision: str, histories: list[dict[str, Any]]
) -> None:
    """Print the table of a model, and add the histories of its runs."""
    rng = np.random.default_rng(5)
    b = model.xp.asarray(rng.standard_normal((*model.shape, 1)).astype(DTYPES[precision]))
    level = LEVELS[precision]
    plain = study(model, b, 1, MONOMIAL, True, True, 20_000)
    reached = plain.to(level)
    print(f"\n{name}, {precision}: CG takes {reached} iterations to {level:g}; least {min(plain.true):.1e}")
    table = PrintedTable("basis", "s", "Gram", "replaced", "iterations", "of CG", "least", "end")
    ingredients = [(True, True)] if given.both else list(product((False, True), repeat=2))
    for basis, s, (higher, replace) in product(given.basis, given.s, ingredients):
        run = study(model, b, s, basis, higher, replace, int(LONGEST * max(plain.iterations)))
        took = run.to(level)
        ratio = "-" if took is None or reached is None else f"{took / reached:.2f}"
        least = f"{min(run.true, default=1.0):.1e}"
        gram = "twice" if higher else "working"
        table.add(basis, s, gram, run.replaced if replace else "no", took or "-", ratio, least, run.end)
        key = {"model": name, "precision": precision, "basis": basis, "s": s}
        key |= {"higher": higher, "replace": replace}
        histories.append({**key, "iterations": run.iterations, "true": run.true, "own": run.own})


if __name__ == "__main__":
    main()
