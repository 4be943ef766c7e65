"""Limits of a run's patience: with workers that are gone or silent, and with chunks that make no progress."""

from __future__ import annotations

from dataclasses import dataclass

HOST = "127.0.0.1"
"""Where all of a run listens that is for this machine alone."""


@dataclass(frozen=True)
class Limits:
    """Seconds, unless said otherwise.

    Args:
        stall: without news of a chunk that has told its progress before; or ten times the chunk's forecast,
            if that is longer. It is then ended and fails.
        mute: likewise of a chunk that has never told its progress.
        absence: without any worker. The run then stops; workers that a batch queue still owes are waited for.
        silence: without a heartbeat of a worker, which is then replaced. Its chunk is computed by another.
        deaths: workers that die with a chunk under their hands, nothing else running, before it fails.
        vain_deaths: workers that may die in a row without a chunk begun or ended, per worker that is wanted.
        saying: between two lines that say what is waited for.
        grace: that running chunks get to finish after a stop was asked for.
    """

    stall: float = 600.0
    mute: float = 3600.0
    absence: float = 240.0
    silence: float = 120.0
    deaths: int = 3
    vain_deaths: int = 5
    saying: float = 60.0
    grace: float = 10.0

    def of_chunk(self, forecast: float, told: bool) -> float:
        """Seconds without news after which a chunk is ended; forecast: its expected seconds, 0 if unknown."""
        return max(self.stall if told else self.mute, 10 * forecast)


LIMITS = Limits()
