"""Products of operators against dense matrices."""

from dataclasses import dataclass

import numpy as np
import pytest

from stages.base.errors import InputError
from stages.lqcd.dirac.operator import Product


@dataclass(frozen=True)
class Dense:
    """A matrix on fields ``[4, 3, N]``, by its seed."""

    seed: int
    hermitian: bool = False
    dagger: bool = False
    precision: str = "complex128"
    shape = (4, 3)
    xp = np

    @property
    def dtype(self):
        return np.dtype(self.precision)

    @property
    def matrix(self):
        rng = np.random.default_rng(self.seed)
        matrix = rng.normal(size=(12, 12)) + 1j * rng.normal(size=(12, 12))
        matrix = matrix @ matrix.conj().T if self.hermitian else matrix
        return (matrix.conj().T if self.dagger else matrix).astype(self.dtype)

    @property
    def positive_definite(self):
        return self.hermitian

    @property
    def adjoint(self):
        return Dense(self.seed, self.hermitian, not self.dagger and not self.hermitian, self.precision)

    def apply(self, x, out=None):
        result = (self.matrix @ x.reshape(12, -1)).reshape(x.shape)
        if out is None:
            return result
        out[...] = result
        return out

    def astype(self, dtype):
        return Dense(self.seed, self.hermitian, self.dagger, np.dtype(dtype).name)


A, B, H = Dense(71), Dense(72), Dense(73, hermitian=True)
CASES = {
    "product": (Product(A, B), A.matrix @ B.matrix),
    "nested": (Product(Product(A, B), H), A.matrix @ B.matrix @ H.matrix),
}


@pytest.mark.parametrize("case", CASES)
def test_is_the_matrix(case):
    operator, matrix = CASES[case]
    x = np.random.default_rng(9).normal(size=(4, 3, 5)) + 0j
    out = np.full_like(x, np.nan)
    assert operator.apply(x, out) is out
    np.testing.assert_allclose(out.reshape(12, 5), matrix @ x.reshape(12, 5), atol=1e-12)
    np.testing.assert_allclose(
        operator.adjoint.apply(x).reshape(12, 5), matrix.conj().T @ x.reshape(12, 5), atol=1e-12
    )
    single = operator.astype(np.complex64)
    assert single.dtype == np.complex64 and single.shape == (4, 3)
    np.testing.assert_allclose(single.apply(x.astype(np.complex64)), out, atol=1e-3)


def test_properties_follow():
    assert Product(A.adjoint, A).positive_definite and Product(A, B).xp is np
    assert not Product(H, A).hermitian


def test_fields_must_agree():
    with pytest.raises(InputError, match=r"same fields, got complex128 .* and complex64"):
        Product(A, B.astype(np.complex64))
