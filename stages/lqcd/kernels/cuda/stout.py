"""One thread a link."""

from __future__ import annotations

import cupy
import numpy as np

from stages.lqcd.kernels.cuda.compile import run
from stages.lqcd.kernels.cuda.devices.own_rows import segments_of
from stages.lqcd.kernels.cuda.launch import matrix_launch


def smeared_links(staples: cupy.ndarray, links: cupy.ndarray, out: cupy.ndarray) -> None:
    matrices = links.size // 9
    kernel = matrix_launch("stout.cu", "smeared_links", matrices, segments_of(out.reshape(-1, 3, 3)))
    run(kernel, out, staples, links, np.uint32(matrices))
