"""A Slurm for the tests of this folder, and campaigns on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from campaigns_on_slurm import SlurmCampaign
from controlled_slurm import ControlledSlurm, missing_programs


@pytest.fixture(scope="session")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlledSlurm]:
    if why := missing_programs():
        pytest.skip(why)
    folder = tmp_path_factory.mktemp("slurm")
    for above in (folder, *folder.parents[:2]):
        above.chmod(0o755)  # munge's socket must be reachable for all
    made = ControlledSlurm(folder)
    try:
        made.start()
        yield made
    finally:
        made.close()


@pytest.fixture
def campaign(slurm: ControlledSlurm, tmp_path: Path) -> Iterator[SlurmCampaign]:
    made = SlurmCampaign(slurm, tmp_path)
    yield made
    made.end()


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """Digests of the same workflow that one driver computed, without any batch system."""
    alone = SlurmCampaign(None, tmp_path_factory.mktemp("undisturbed"))
    done = alone.quarkline("run", "g2.yaml", "--workers", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    return alone.digests()
