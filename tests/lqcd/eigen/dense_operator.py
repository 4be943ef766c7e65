"""A dense Hermitian matrix of chosen eigenvalues as a linear operator."""

import numpy as np


class DenseOperator:
    """A Hermitian matrix on fields ``[L, 3, N]`` without any method that an operator may have beside."""

    hermitian, positive_definite, xp = True, False, np

    def __init__(self, matrix, dtype=np.complex128):
        self.matrix, self.dtype = matrix.astype(dtype), np.dtype(dtype)
        self.shape = (len(matrix) // 3, 3)
        self.applications = 0

    def apply(self, x, out=None):
        self.applications += x.shape[-1]
        result = (self.matrix @ x.reshape(len(self.matrix), -1)).reshape(x.shape)
        if out is None:
            return result
        out[...] = result
        return out


def hermitian(seed, eigenvalues):
    rng = np.random.default_rng(seed)
    size = len(eigenvalues)
    basis, _ = np.linalg.qr(rng.normal(size=(size, size)) + 1j * rng.normal(size=(size, size)))
    return (basis * eigenvalues) @ basis.conj().T
