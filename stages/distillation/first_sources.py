"""A transient stage that makes the first sources of distillation, on the device that solves."""

from __future__ import annotations

from pipeline import At, Keyed, stage
from stages.distillation.costs import first_sources_cost
from stages.distillation.laplace_eigenvectors import LaplaceBasis
from stages.lqcd.dirac.wilson import WilsonOperator
from stages.lqcd.distillation.columns import FullColumns, StochasticColumns
from stages.lqcd.distillation.distillation_sources import distillation_sources
from stages.lqcd.distillation.projected import library
from stages.mesons.sources import FirstSources


@stage(
    version="1",
    over=("config", "source"),
    transient=True,
    keyed=Keyed(without=("block",)),
    cost=first_sources_cost,
)
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
