"""HISQ products on several devices have the bits of one: every form of links, widths, and uneven parts."""

from functools import cache

import numpy as np
import pytest

pytest.importorskip("cupy")

import cupy
from test_devices_gpu import on_parts

from stages.lqcd.dirac.staggered import NormalOperator, StaggeredDslash
from stages.lqcd.gauge.heatbath import thermalised
from stages.lqcd.gauge.hisq import hisq_links
from stages.lqcd.kernels import stream
from stages.lqcd.kernels.cuda.devices.group import spread_over
from stages.lqcd.kernels.fields import empty_field
from stages.lqcd.kernels.link_forms import Packing
from stages.lqcd.kernels.transfer import copy_to_host
from stages.lqcd.lattice.geometry import Lattice

pytestmark = pytest.mark.gpu

UNEVEN = Lattice((24, 24, 16, 26))
"""So wide that eight devices have a little more than a page of links in each direction."""

WIDTHS = (1, 8, 16)
REPEATS = 5


def products(devices: tuple[int, ...], dtype: type[np.complexfloating]) -> list[np.ndarray]:
    """A^10 b from a graph for every width, links packed for it, in the memory of the host."""
    with spread_over(UNEVEN, devices):
        thin = thermalised(UNEVEN, 6.0, 31, "products", 1, 0, xp=cupy)
        links = hisq_links(thin, UNEVEN, boundary="antiperiodic", naik_epsilon=0.0)
        results = []
        for n in WIDTHS:
            A = NormalOperator(StaggeredDslash(links, packing=Packing(block=n)), 0.2).astype(dtype)
            shape = (UNEVEN.half_volume, 3, n)
            numbers = np.random.default_rng(n).standard_normal((*shape, 2)).view(complex)[..., 0]
            x, y = (empty_field(shape, dtype, cupy) for _ in range(2))
            x[...] = cupy.asarray(numbers.astype(dtype))

            def step(A: NormalOperator = A, x: cupy.ndarray = x, y: cupy.ndarray = y) -> None:
                A.apply(x, y)
                A.apply(y, x)

            repeated = stream.recorded(step, cupy)
            for _ in range(REPEATS):
                repeated()
            results.append(copy_to_host(x))
        return results


one_device = cache(products)


@on_parts
@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_products_have_the_bits_of_one_device(
    dtype: type[np.complexfloating], devices: tuple[int, ...]
) -> None:
    for n, expected, found in zip(WIDTHS, one_device((0,), dtype), products(devices, dtype), strict=True):
        np.testing.assert_array_equal(found, expected, err_msg=f"{devices}, N = {n}")
