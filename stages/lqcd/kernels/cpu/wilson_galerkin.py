"""The oracle's, for comparison: a setup on a CPU makes products of columns, with fields in between."""

from __future__ import annotations

from stages.lqcd.kernels.reference.wilson_galerkin import places, put_hop, put_local

__all__ = ["places", "put_hop", "put_local", "takes"]


def takes(vectors: int, per_aggregate: int) -> bool:
    return False
