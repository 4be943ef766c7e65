"""Others at work on the same store: second drivers, other numbers of workers, other code, another backend."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import fault_stages
import strikes
from disk_faults import kill_driver, once_struck, waiting_order
from fault_campaign import PATIENCE, Campaign, session
from process_faults import strike_worker
from verdict import chunk_paths
from zygote import Started

HERE = Path(__file__).parent


def second_driver(campaign: Campaign) -> str:
    """Refused, at whatever the first one is; that one goes on."""
    order = waiting_order(campaign, "second driver")
    second: list[Started] = []

    def intrude() -> None:
        second.append(campaign.start())
        assert second[0].wait(PATIENCE) == 2, second[0].errors.read_text()

    ended = campaign.run(once_struck(campaign, order, intrude))
    assert ended.status in (0, None), ended
    if second:
        assert "is driven by run" in second[0].errors.read_text()
    return ""


def other_workers(campaign: Campaign) -> str:
    """Killed, and gone on with by one, three or four workers, as often as it takes."""
    for number in campaign.choice.sample([1, 3, 4], 2):
        kill_driver(campaign)
        campaign.note("another number of workers", "start and end", str(number))
        campaign.options["workers"] = number
    campaign.run()
    return ""


def old_code(campaign: Campaign) -> str:
    """Workers load an older state of a stage than the driver: nothing of theirs is committed."""
    folder = code(campaign)
    edit(folder)
    if campaign.choice.random() < 0.5:
        kill_driver(campaign)
    before = len(chunk_paths(campaign.store))
    campaign.note("workers with older code", "start and end")
    ended = campaign.run(path=str(folder), warm=False)
    assert ended.status in (2, None), ended
    assert len(chunk_paths(campaign.store)) == before
    return "has other code than the driver"


def edited_code(campaign: Campaign) -> str:
    """A stage is edited during a run, and a worker replaced: the new one loads the new code."""
    folder = code(campaign)
    order = waiting_order(campaign, "code edited during a run, worker replaced")

    def edit_and_kill() -> None:
        edit(folder)
        first, *_ = strikes.enlisted(campaign.orders, "worker")
        (campaign.orders / f"{order.name}.go").touch()
        time.sleep(0.05)
        strikes.kill(first)

    campaign.run(once_struck(campaign, order, edit_and_kill), path=str(folder), warm=False)
    return "has other code than the driver"


def mixed_drivers(campaign: Campaign) -> str:
    """A driver that would share the store is refused if its code is not that of the one at work."""
    folder = code(campaign)
    edit(folder)
    order = waiting_order(campaign, "driver of other code, sharing the store")

    def join() -> None:
        other = campaign.start(share=True, path=str(folder), edited=True, warm=False)
        assert other.wait(PATIENCE) == 2, other.errors.read_text()
        assert "whose code differs (fault_stages" in other.errors.read_text()
        campaign.start(share=True)

    ended = campaign.run(once_struck(campaign, order, join), share=True)
    assert ended.status in (0, 4, None), ended
    campaign.ended[-1].status = ended.status and 0  # 4: the rest is in work by the other one
    deadline = time.monotonic() + PATIENCE
    while any(map(session, campaign.leaders)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return ""


def requeued(campaign: Campaign) -> str:
    """A job is killed with its node and runs on another one, which takes its former life for over."""
    campaign.options["share"], campaign.environment["SLURM_JOB_ID"] = True, "17"
    kill_driver(campaign)
    for lease in (campaign.store / ".drivers").iterdir():
        lease.write_text(json.dumps({**json.loads(lease.read_text()), "host": "elsewhere"}))
    campaign.note("SIGKILL of a node, its job requeued", "start and end")
    campaign.environment["SLURM_RESTART_COUNT"] = "1"
    assert campaign.run().status in (0, None)
    campaign.options.clear()
    campaign.environment.clear()
    return ""


def trapped(campaign: Campaign) -> str:
    """Files named like modules lie in the folder of a run, one of whose workers dies and is replaced."""
    folder = campaign.folder / "work"
    folder.mkdir()
    for name in ("random", "numpy", "dask", "pipeline", "stages", "sitecustomize"):
        (folder / f"{name}.py").write_text("raise ImportError('a file of the folder')\n")
    campaign.note("files named like modules in the folder", "start and end")
    strike_worker(campaign)
    campaign.run(folder=str(folder), warm=False)
    return ""


def code(campaign: Campaign) -> Path:
    """A copy of the stages, which workers find first."""
    folder = campaign.folder / "code"
    folder.mkdir()
    shutil.copy(HERE / "fault_stages.py", folder)
    return folder


def edit(folder: Path) -> None:
    file = folder / "fault_stages.py"
    text = file.read_text()
    assert "field.values[:4]) / mass" in text
    file.write_text(text.replace("field.values[:4]) / mass", "field.values[1:5]) / mass"))


def faked_cuda(campaign: Campaign) -> str:
    """Begun on a GPU (that a module pretends to be), killed there, resumed on the CPU."""
    campaign.options.update(backend="cuda", path=str(HERE / "faked_cuda"), warm=False)
    kill_driver(campaign)
    begun = len(chunk_paths(campaign.store))
    campaign.note("begun on CUDA (faked), resumed on the CPU", "start and end", f"{begun} chunks")
    campaign.options.clear()
    assert begun and fault_stages.CONFIGS
    return ""


CASES = {
    second_driver: 3,
    other_workers: 2,
    old_code: 2,
    edited_code: 3,
    faked_cuda: 2,
    mixed_drivers: 3,
    requeued: 2,
    trapped: 2,
}
"""How often each is done in the long form."""
