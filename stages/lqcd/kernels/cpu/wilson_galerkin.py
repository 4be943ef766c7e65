"""A setup on a CPU makes products of columns, with fields in between: there is nothing by parts."""

from __future__ import annotations


def takes(vectors: int, per_aggregate: int) -> bool:
    return False
