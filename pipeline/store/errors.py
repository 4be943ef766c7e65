"""Errors of the store, by what they mean for a run."""

from __future__ import annotations

from stages.base.errors import InputError


class StoreError(InputError):
    """The store cannot be written: nothing later in a run can be committed either."""


class StoreFullError(StoreError):
    """Error of a store without room to write."""


class DamagedChunkError(InputError):
    """A committed chunk whose content is not what was written: files that are gone, sums that differ."""

    def __init__(self, message: str, stage: str = "", key: str = "") -> None:
        super().__init__(message)
        self.stage = stage
        self.key = key


class UnreadableChunkError(InputError):
    """A committed chunk that cannot be read now (I/O error, permission), whatever its content."""
