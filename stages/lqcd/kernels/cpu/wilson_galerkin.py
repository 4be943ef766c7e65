"""None: on a CPU fields of products cost little beside the products."""

from __future__ import annotations


def takes(vectors: int, per_aggregate: int) -> bool:
    return False
