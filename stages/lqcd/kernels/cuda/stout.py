"""One thread a link."""

from __future__ import annotations

import cupy
import numpy as np

from stages.lqcd.kernels.cuda.compile import run
from stages.lqcd.kernels.cuda.launch import matrix_launch


def smeared_links(staples: cupy.ndarray, links: cupy.ndarray, out: cupy.ndarray) -> None:
    matrices = links.size // 9
    run(matrix_launch("stout.cu", "smeared_links", matrices), out, staples, links, np.uint32(matrices))
