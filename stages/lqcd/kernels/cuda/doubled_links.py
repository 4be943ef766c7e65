"""Direction-doubled links on a GPU, one thread a link."""

from __future__ import annotations

import cupy
import numpy as np

from stages.lqcd.kernels.cuda.compile import run
from stages.lqcd.kernels.cuda.launch import gauge
from stages.lqcd.kernels.directions import HISQ_DIRECTIONS, NAIVE_DIRECTIONS
from stages.lqcd.kernels.expressions import spatial_links as spatial_links
from stages.lqcd.kernels.operands import check_array
from stages.lqcd.lattice.geometry import Lattice


def doubled_links(
    fat: cupy.ndarray, long: cupy.ndarray | None, lattice: Lattice, parity: int, out: cupy.ndarray
) -> None:
    for name, links in (("fat", fat), ("long", long)):
        if links is not None:
            check_array(name, links, (4, 2, lattice.half_volume, 3, 3), np.dtype(complex))
    directions = NAIVE_DIRECTIONS if long is None else HISQ_DIRECTIONS
    kernel = gauge.doubled_links(lattice, directions, out.dtype)
    run(kernel, out, fat, np.uintp(0) if long is None else long, np.int32(parity))
