"""The update of links by stout smearing (arXiv:hep-lat/0311018)."""

from __future__ import annotations

import numpy as np

from stages.lqcd.kernels.dispatch import Array, kernel
from stages.lqcd.kernels.operands import check_array


def smeared_links(staples: Array, links: Array, out: Array) -> None:
    """``out = exp(A) U``, A the traceless anti-Hermitian part of C U^dag, of staples C and links U.

    All are complex128 ``[parity, site, 3, 3]``; `out` may be `links`. Raises InputError.
    """
    for name, array in (("staples", staples), ("links", links), ("out", out)):
        check_array(name, array, (*links.shape[:-2], 3, 3), np.dtype(complex))
    kernel("stout.smeared_links", type(links))(staples, links, out)
