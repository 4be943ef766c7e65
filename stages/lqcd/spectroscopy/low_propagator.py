"""The propagator of low modes, for every mass: G_L = sum over modes and odd partners of M^-1.

With vectors v_n on the even sites and numbers lambda_n > 0, meant to be eigenpairs of -D_eo D_oe, and the odd
partners w_n = D_oe v_n / sqrt(lambda_n), which nobody stores,

    G_L = sum_n [ r_n (v_n v_n^dag + w_n w_n^dag) + q_n (v_n w_n^dag - w_n v_n^dag) ],
    r_n = 2 m / (4 m^2 + lambda_n),   q_n = sqrt(lambda_n) / (4 m^2 + lambda_n).

Of eigenvectors it is the sum of phi phi^dag / (2 m + i lam) over phi = (v, -i w) / sqrt 2 with lam = +
sqrt(lambda), and epsilon phi with - sqrt(lambda) (arXiv:hep-lat/0401011). Its definition, and G_L^dag =
epsilon G_L epsilon, hold for any v and lambda: what it leaves out of a trace, estimated with the same ones,
has no bias. A zero mode has no partner: w = 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from stages.base.errors import InputError
from stages.lqcd.dirac.staggered import StaggeredDslash
from stages.lqcd.kernels import basis, block_blas, lane_blas
from stages.lqcd.kernels.dispatch import Array, as_numpy, to_device_like
from stages.lqcd.kernels.fields import assign, contiguous, converted, field_like, zeros_like
from stages.lqcd.lattice.geometry import EVEN, ODD
from stages.lqcd.solvers.deflation import has_odd_partner
from stages.lqcd.solvers.space import Space

Ranks = Sequence[int] | NDArray[np.integer]


def mode_weights(eigenvalues: NDArray[np.float64], mass: float) -> NDArray[np.float64]:
    """G_L in the basis of v and w, ``[parity, parity, n]``: [[r, q], [-q, r]] of each mode.

    Raises InputError unless the mass is positive.
    """
    if not mass > 0:
        raise InputError(f"the mass of low modes' propagators must be positive, got {mass}")
    values = np.asarray(eigenvalues)
    exists = has_odd_partner(values)
    r, q = 2 * mass / (4 * mass**2 + values), np.sqrt(values.clip(0)) / (4 * mass**2 + values) * exists
    return np.array([[r, q], [-q, r * exists]])


@dataclass(frozen=True)
class LowPropagator:
    """G_L of a dslash in double precision.

    space: its Ritz vectors are the v_n, ``[site, 3]`` on the even sites, complex64 or complex128; where they
    are the vectors as stored (`Space.of_eigenpairs`), no product makes them again for each block.
    eigenvalues: lambda_n, float64 ``[n]`` on the host.
    """

    dslash: StaggeredDslash
    space: Space
    eigenvalues: NDArray[np.float64]

    @classmethod
    def of(cls, dslash: StaggeredDslash, space: Space) -> LowPropagator:
        """With lambda_n = |D_oe v_n|^2, by which w_n has norm one: small Ritz values lose digits."""
        unit = cls(dslash.astype(np.complex128), space, np.ones(space.rotation.shape[1]))
        norms2 = [as_numpy(block_blas.norms2(w)) for _, (_, w) in unit.blocks()]
        return replace(unit, eigenvalues=np.concatenate(norms2))

    def chosen(self, ranks: Ranks) -> LowPropagator:
        """That of the modes of these numbers, counted from 0. Raises InputError for one that is not there."""
        numbers, space = checked_ranks(ranks, len(self.eigenvalues)), self.space
        part = replace(space, eigenvalues=space.eigenvalues[numbers], rotation=space.rotation[:, numbers])
        return replace(self, space=part, eigenvalues=self.eigenvalues[numbers])

    def apply(self, mass: float, b: Array) -> Array:
        """G_L b of a field complex128 ``[parity, site, 3, N]``, a new one."""
        root = self._inverse_root  # what D applies to is v, and D v is sqrt(lambda) w
        scales = np.array([[np.ones_like(root), root], [root, root**2]])
        table = to_device_like((mode_weights(self.eigenvalues, mass) * scales)[..., None], b)
        v = self.space.components(b[EVEN])
        w = self.space.components(self.dslash.apply_to(EVEN, b[ODD], b=-1.0))
        even, odd = (
            self.space.combination(table[p, EVEN] * v + table[p, ODD] * w, b[EVEN]) for p in (EVEN, ODD)
        )
        out = field_like(b)
        assign(out[EVEN], even)
        self.dslash.apply_to(ODD, odd, out[ODD])
        return out

    @property
    def _inverse_root(self) -> NDArray[np.float64]:
        """1 / sqrt(lambda), 0 where there is no partner."""
        exists = has_odd_partner(self.eigenvalues)
        return exists / np.sqrt(np.where(exists, self.eigenvalues, 1))

    def blocks(
        self, width: int = 16, first: int = 0, last: int | None = None
    ) -> Iterator[tuple[slice, tuple[Array, Array]]]:
        """Columns first ... last - 1, and v and w, complex128 ``[site, 3, column]``: `width` at a time."""
        vectors, rotation, root = self.space.vectors, self.space.rotation, self._inverse_root
        plain = np.array_equal(rotation, np.eye(len(rotation)))
        end = len(root) if last is None else last
        for start in range(first, end, width):
            columns = slice(start, min(start + width, end))
            if plain:
                v = converted(vectors[..., columns], np.complex128)
            else:
                v = zeros_like(vectors, (*vectors.shape[:-1], columns.stop - start), np.complex128)
                basis.add_combination(v, vectors, contiguous(to_device_like(rotation[:, columns], vectors)))
            w = self.dslash.apply_to(ODD, v)
            lane_blas.lane_scale(w, to_device_like(root[columns], w), w)
            yield columns, (v, w)


def checked_modes(low: object) -> None:
    """Raises InputError unless `low` is a `LowPropagator`."""
    if not isinstance(low, LowPropagator):
        raise InputError(f"modes are a LowPropagator, as lowest(A, 64).propagator, got {type(low).__name__}")


def checked_ranks(ranks: Ranks | None, count: int) -> NDArray[np.intp]:
    """Ranks, all for None. Raises InputError unless they are different numbers from 0 to count - 1."""
    numbers = list(range(count) if ranks is None else ranks)
    if not numbers or len({*numbers}) < len(numbers) or not {*numbers} <= {*range(count)}:
        raise InputError(f"ranks of {count} modes are different, 0 to {count - 1}, got {numbers!r:.80}")
    return np.array(numbers, np.intp)
