"""Products of three links in a row."""

from __future__ import annotations

import cupy
import numpy as np

from stages.lqcd.kernels.cuda.compile import run
from stages.lqcd.kernels.cuda.launch import gauge
from stages.lqcd.kernels.operands import check_gauge
from stages.lqcd.lattice.geometry import Lattice


def long_links(links: cupy.ndarray, lattice: Lattice, coefficient: float, out: cupy.ndarray) -> None:
    """out_mu(x) = c U_mu(x) U_mu(x + mu) U_mu(x + 2 mu), ``[mu, parity, site, 3, 3]``; out is not links."""
    check_gauge(links, lattice, out)
    real = np.float32 if out.dtype == np.complex64 else np.float64
    run(gauge.long_links(lattice, out.dtype), out, links, real(coefficient))
