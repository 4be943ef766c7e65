"""OAR: its workers' jobs are submitted and cancelled; which of them live is not asked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pipeline.running.clusters.batch import UNSEEN, BatchSystem, Seen, Wish
from stages.base.errors import InputError


class Oar(BatchSystem):
    """OAR."""

    kind = "oar"
    submission = "oarsub"
    cancellation = "oardel"
    prefix = "#OAR"

    def options(self, wish: Wish) -> list[str]:
        """None: whole jobs of OAR are not known here."""
        raise InputError("whole jobs of oar are not known here: let the driver submit its workers")

    def submit(self, script: Path, after: str | None = None) -> str:
        """Refuse: whole jobs of OAR are not known here."""
        raise InputError(
            f"jobs of oar such as {script} are not known here: let the driver submit its workers"
        )

    def look(self, jobs: Sequence[str]) -> dict[str, Seen]:
        """Nothing is known of any job."""
        return dict.fromkeys(jobs, UNSEEN)

    @property
    def can_be_asked(self) -> bool:
        """False."""
        return False


SYSTEM = Oar()
