"""Links of both staggered operators."""

from collections.abc import Callable

import pytest
from numpy.typing import NDArray

from stages.lqcd.gauge.hisq import StaggeredLinks, hisq_links, naive_links
from stages.lqcd.lattice.geometry import Lattice


@pytest.fixture(params=["hisq", "naive"])
def build(request: pytest.FixtureRequest) -> Callable[[NDArray, Lattice], StaggeredLinks]:
    """build(thin links, lattice): the antiperiodic links of the improved and of the naive operator."""

    def construct(thin: NDArray, lattice: Lattice) -> StaggeredLinks:
        if request.param == "naive":
            return naive_links(thin, lattice, boundary="antiperiodic")
        return hisq_links(thin, lattice, boundary="antiperiodic", naik_epsilon=-0.1)

    return construct
