"""The stage of elementals: operators between eigenvectors, which meson fields are made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, NamedTuple

import numpy as np

from pipeline import At, Dims, Resources, stage
from stages.base.errors import InputError
from stages.distillation.costs import elementals_cost
from stages.distillation.laplace_eigenvectors import LaplaceBasis
from stages.ensemble.smeared_links import SmearedLinks
from stages.lqcd.dirac.laplacian import SpatialHop
from stages.lqcd.distillation import elementals as products
from stages.lqcd.distillation.eigenvectors import residuals, slices_alone
from stages.lqcd.distillation.insertions import Insertions
from stages.lqcd.eigen.memory import available_bytes
from stages.lqcd.kernels.dispatch import array_module

SHARE = 0.5
"""Of the free memory, what elementals may take beside links and eigenvectors."""

FOREIGN = 1e-2
"""Residual of an eigenvector, lattice units, from which on its links must have been others."""


class Elementals(NamedTuple):
    """Elementals phi_i^dag e^{ipx} D phi_j of the eigenvectors of each time slice.

    Those of `stages.lqcd.distillation.elementals`.

    As of `stages.lqcd.distillation.elementals`.
    """

    elementals: Annotated[
        np.ndarray, Dims("time", "momentum", "displacement", "bra", "ket", pieces={"time": 1})
    ]
    """complex128; displacements in the order given."""
    momentum: Annotated[np.ndarray, Dims("momentum", "direction")]
    """int64, in units of 2 pi / L."""


@stage(version="1", over=("config",), resources=Resources(device=1), cost=elementals_cost)
def elementals(
    links: SmearedLinks,
    basis: LaplaceBasis,
    *,
    at: At,
    momenta: Sequence[tuple[int, int, int]] = ((0, 0, 0),),
    displacements: Sequence[str] = ("",),
) -> Elementals:
    """Elementals of all pairs of eigenvectors.

    displacements: words of steps such as '+x', along the links that the eigenvectors are of; '' is none.
    Raises InputError, also for eigenvectors of other links.
    """
    lattice, xp = links.lattice, array_module(links.links)
    check_links(links, basis)
    insertions = Insertions(lattice, tuple(momenta), tuple(displacements))
    free = int(SHARE * available_bytes(xp))
    values = products.elementals(basis.vectors, links.links, insertions, xp, free)
    return Elementals(values, np.array(momenta, np.int64))


def check_links(links: SmearedLinks, basis: LaplaceBasis) -> None:
    """Raises InputError unless the eigenvectors of the first slices are those of these links."""
    hop = SpatialHop(*slices_alone(links.links, links.lattice, (0, 1)))
    some = array_module(links.links).asarray(basis.vectors[:2, ..., :8])
    if (worst := residuals(hop, some.astype(complex), basis.values[:2, :8]).max()) > FOREIGN:
        raise InputError(
            f"eigenvectors with residuals up to {worst:.2g} are not those of these links: take the gauge "
            "field and the smearing that they were computed with"
        )
