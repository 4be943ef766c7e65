"""A transient stage that makes the first sources of distillation, on the device that solves."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline import At, stage
from stages.dirac.wilson import WilsonOperator
from stages.distillation.columns import FullColumns, StochasticColumns
from stages.distillation.projected import library
from stages.distillation.sources import distillation_sources
from stages.kernels.dispatch import Array
from stages.laplace_eigenvectors import LaplaceBasis


@dataclass(frozen=True, eq=False)
class FirstSources:
    """Sources in the DeGrand-Rossi basis: complex128 ``[parity, site, component, column]``.

    Component 3 * spin + colour; columns of a chunk of sources, which may be several.
    """

    fields: Array


@stage(version="1", over=("config", "source"), transient=True, unkeyed=("block",))
def first_sources(
    operator: WilsonOperator,
    basis: LaplaceBasis,
    columns: FullColumns | StochasticColumns,
    *,
    at: At,
    block: int,
) -> FirstSources:
    """The first `block` columns of a chunk, fewer if it has no more. Raises InputError."""
    first = range(min(block, len(columns)))
    lattice, xp = operator.dslash.lattice, library(operator)
    return FirstSources(distillation_sources(basis.vectors, lattice, columns, first, xp))
