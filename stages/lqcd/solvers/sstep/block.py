"""A block of steps: powers of A on p and r at once, their Gram matrix, coordinates, one update of fields."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from stages.lqcd.dirac.operator import LinearOperator, Step, Storage, whole_storage
from stages.lqcd.kernels import powers, stream
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.kernels.fields import field_like, zeros_like
from stages.lqcd.solvers.sstep.polynomials import Polynomials

CONDITION = 1e-5
"""The rounding of a vector of the basis, over the sine of its angle to those before it, stays below this.

With 1e-2 monomials with s = 8 took 1.41 times the iterations of batched CG in double-single (HISQ, 4^4,
m = 0.05), with 1e-4 1.17.
"""


@dataclass(frozen=True)
class Ingredients:
    """The parts of the method, of which a study takes some away.

    precision: of the Gram matrix (`stages.lqcd.kernels.powers`). norm: |A|. replace: by the bound of the
    deviation. guard: fewer steps where the basis is ill-conditioned.
    """

    polynomials: Polynomials
    steps: int
    precision: str
    norm: float
    replace: bool
    guard: bool


class Fields:
    """y, the last direction and A times that ``[..., width]``, paired powers ``[steps + 1, ..., 2 width]``.

    Beside them the norms to reach, squared, and where the next step follows a replacement, ``[width]``.
    """

    def __init__(self, residual: Array, steps: int, dtype: np.dtype) -> None:
        shape, width = residual.shape[:-1], residual.shape[-1]
        self.powers = field_like(residual, (steps + 1, *shape, 2 * width), dtype)
        self.y = zeros_like(residual, dtype=dtype)
        self.last, self.image = zeros_like(self.y), zeros_like(self.y)
        numbers = zeros_like(residual, (2, width + width % 2), np.float64)
        self.targets2, self.restarted = numbers[0, :width], numbers[1, :width]

    @property
    def p(self) -> Array:
        return self.powers[0, ..., : self.y.shape[-1]]

    @property
    def r(self) -> Array:
        return self.powers[0, ..., self.y.shape[-1] :]


class Block:
    """So many steps on these fields. ahead: fields are updated with them, and the host is told later."""

    def __init__(
        self, A: LinearOperator, fields: Fields, parts: Ingredients, steps: int, ahead: bool
    ) -> None:
        self.steps, self.fields, self.parts = steps, fields, parts
        self.powers = fields.powers[: steps + 1]
        self.change = change_of(parts.polynomials, steps)
        self.gram, self.path = powers.Gram.empty(self.powers), powers.Path.empty(self.powers, self.change)
        self.reports = stream.reports(self.path.report)
        storage = whole_storage(A)
        self.products = _products(storage, self.powers, parts.polynomials)
        step = partial(self._run, ahead)
        self._step = storage.repeated(step)

    def start(self) -> None:
        """Queue steps 1 to 3, with `ahead` also 4, and the report."""
        self._step()
        self.reports.send(self.path.report)

    def receive(self) -> powers.Report:
        return powers.Report.of(self.reports.receive())

    def make_powers(self) -> None:
        """Step 1."""
        for product in self.products:
            product()

    def sum_gram(self) -> None:
        """Step 2."""
        powers.gram(self.powers, self.parts.precision, self.gram)

    def take_steps(self) -> None:
        """Step 3."""
        of, doubled = self.fields, self.parts.precision in (powers.DOUBLED, powers.CRAY)
        powers.conjugate_gradients(self.gram, of.targets2, of.restarted, self._least(), doubled, self.path)

    def update(self, step: int) -> None:
        """Step 4, after so many steps of the block."""
        of = self.fields
        powers.update(of.y, self.powers, of.last, of.image, self.path, of.restarted, step)

    def _run(self, ahead: bool) -> None:
        self.make_powers()
        self.sum_gram()
        self.take_steps()
        if ahead:
            self.update(self.steps)

    def _least(self) -> float:
        """Of squared sines of angles between a vector of the basis and those before it; 0: no limit."""
        eps = float(np.finfo(self.powers.dtype).eps)
        double = self.powers.dtype == np.complex128
        as_vectors = self.parts.precision == (powers.DOUBLE if double else powers.WORKING)
        plain = as_vectors or self.parts.precision == powers.WORKING
        return (np.sqrt(eps) if plain else eps) ** 2 / CONDITION**2 if self.parts.guard else 0.0


def change_of(polynomials: Polynomials, steps: int) -> np.ndarray:
    """The matrix by which A acts on coordinates in paired powers, ``[K, K]``, K = 2 steps + 1."""
    change = np.zeros((2 * steps + 1, 2 * steps + 1))
    change[: steps + 1, : steps + 1] = polynomials.change(steps)
    change[steps + 1 :, steps + 1 :] = polynomials.change(steps - 1)
    return change


def _products(storage: Storage, vectors: Array, of: Polynomials) -> list[Step]:
    """Steps that make one power after another."""
    products = list[Step]()
    for i in range(len(vectors) - 1):
        theta, sigma, gamma = (float(each[i]) for each in (of.theta, of.sigma, of.gamma))
        products.append(storage.product(vectors[i], vectors[i + 1], None, -theta / gamma, 1 / gamma))
        if sigma:
            products.append(partial(powers.add_earlier, vectors, i, -sigma / gamma))
    return products
