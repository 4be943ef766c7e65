"""Linear algebra on blocks of right-hand sides: Gram products, small matrices, the updates of CG."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from stages.lqcd.kernels import block_blas, cg_update
from stages.lqcd.kernels.cg_update import CGCoefficients
from stages.lqcd.kernels.dispatch import Array
from workflows.benchmarks.machine import Work, random_field
from workflows.benchmarks.speed import Bench, SiteCost, Speed, streaming


def speeds(bench: Bench) -> Iterator[Speed]:
    """Every kernel for every precision and width, on fields ``[site, 3, N]`` of one parity."""
    for precision, dtype, rhs in bench.blocks:
        for kernel, (work, cost) in kernels(bench, dtype, rhs).items():
            names = {"family": "blas", "kernel": kernel, "precision": precision}
            yield bench.measured(work, cost, bench.lattice.half_volume, rhs=rhs, **names)


def slow_coefficients(field: Array) -> CGCoefficients:
    """Numbers of a step that changes fields little, again and again: |A p|^2 is made out to be large."""
    coefficients = CGCoefficients.zeros(field)
    coefficients.alpha[...] = coefficients.beta[...] = 1e-3
    coefficients.r2[...] = coefficients.gamma[...] = 1
    coefficients.pap[...] = 1e12
    return coefficients


def kernels(bench: Bench, dtype: np.dtype, rhs: int) -> dict[str, tuple[Work, SiteCost]]:
    """Each kernel's call and cost; small matrices and coefficients are such that nothing grows."""
    machine, shape = bench.machine, (bench.lattice.half_volume, 3, rhs)
    x, y, p, ap = (random_field(machine, shape, dtype) for _ in range(4))
    a = random_field(machine, (rhs, rhs), np.complex128) / (4 * rhs)
    c = slow_coefficients(x)
    product = 24 * rhs
    return {
        "gram": (lambda: block_blas.gram(x, y), streaming(product, 2, dtype)),
        "update": (lambda: block_blas.update(y, x, a), streaming(product, 3, dtype)),
        "rotate": (lambda: block_blas.rotate(x, a, y), streaming(product, 2, dtype)),
        "rotate_add": (lambda: block_blas.rotate_add(x, p, a, p), streaming(product, 3, dtype)),
        "dots": (lambda: block_blas.dots(x, y), streaming(24, 2, dtype)),
        "norms2": (lambda: block_blas.norms2(x), streaming(12, 1, dtype)),
        "cg_advance": (lambda: cg_update.cg_advance(x, p, y, c), streaming(24, 5, dtype)),
        "cg_residual": (lambda: cg_update.cg_residual(y, ap, c), streaming(24, 3, dtype)),
    }
