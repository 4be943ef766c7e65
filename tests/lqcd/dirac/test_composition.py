"""A^H A of an operator against the dense matrix."""

from dataclasses import dataclass

import numpy as np

from stages.lqcd.dirac.operator import Normal


@dataclass(frozen=True)
class Dense:
    """A matrix on fields ``[4, 3, N]``, by its seed."""

    seed: int
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
        return (matrix.conj().T if self.dagger else matrix).astype(self.dtype)

    @property
    def adjoint(self):
        return Dense(self.seed, not self.dagger, self.precision)

    def apply(self, x, out=None):
        result = (self.matrix @ x.reshape(12, -1)).reshape(x.shape)
        if out is None:
            return result
        out[...] = result
        return out

    def astype(self, dtype):
        return Dense(self.seed, self.dagger, np.dtype(dtype).name)


def test_is_the_matrix():
    A = Dense(71)
    operator, matrix = Normal(A), A.matrix.conj().T @ A.matrix
    assert operator.hermitian and operator.positive_definite and operator.xp is np
    x = np.random.default_rng(9).normal(size=(4, 3, 5)) + 0j
    out = np.full_like(x, np.nan)
    assert operator.apply(x, out) is out
    np.testing.assert_allclose(out.reshape(12, 5), matrix @ x.reshape(12, 5), atol=1e-12)
    single = operator.astype(np.complex64)
    assert single.dtype == np.complex64 and single.shape == (4, 3)
    np.testing.assert_allclose(single.apply(x.astype(np.complex64)), out, atol=1e-3)
