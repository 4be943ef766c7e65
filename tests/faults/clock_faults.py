"""Clocks that jump during a run, for every process of it, by a library that is loaded before libc."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

import pytest
from disk_faults import once_struck, waiting_order
from fault_campaign import Campaign
from zygote import Zygote

CLOCK = "QUARKLINE_FAULT_CLOCK"

SHIM = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile double *offset;                /* seconds, in a file that the suite writes */

__attribute__((constructor)) static void map_offset(void) {
    const char *path = getenv("QUARKLINE_FAULT_CLOCK");
    int handle = path ? open(path, O_RDONLY) : -1;
    if (handle < 0) return;
    void *page = mmap(0, sizeof(double), PROT_READ, MAP_SHARED, handle, 0);
    if (page != MAP_FAILED) offset = page;
    close(handle);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = syscall(SYS_clock_gettime, clock, now);
    if (!failed && clock == CLOCK_REALTIME && offset) now->tv_sec += (time_t)*offset;
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *result) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (result) *result = exact.tv_sec;
    return exact.tv_sec;
}
"""

JUMPS = (-86400.0, -3600.0, -20.0, 20.0, 400.0, 3600.0, 86400.0)


def jump(campaign: Campaign) -> str:
    """Two jumps of a run's clock; the next run has the right time again."""
    clock = campaign.folder / "clock"
    clock.write_bytes(struct.pack("d", 0.0))
    campaign.tolerance = 3 * 86400.0
    ordinary = campaign.zygote
    campaign.zygote = Zygote("fault_driver", LD_PRELOAD=str(library(campaign.folder)), **{CLOCK: str(clock)})
    try:
        jumps = campaign.choice.sample(JUMPS, 2)
        acts = []
        for seconds in jumps:
            kind = "clock jumps ahead" if seconds > 0 else "clock jumps back"
            order = waiting_order(campaign, kind)
            acts.append(once_struck(campaign, order, lambda s=seconds: put(clock, s)))
        ended = campaign.run(lambda driver: [act(driver) for act in acts])  # type: ignore[arg-type, return-value]
        assert ended.status in (0, None), ended
    finally:
        campaign.zygote.close()
        campaign.zygote = ordinary
    return ""


def put(clock: Path, seconds: float) -> None:
    """Set a clock in place: processes have its file mapped, and would die of one that has no bytes."""
    with clock.open("r+b", buffering=0) as file:
        file.write(struct.pack("d", seconds))


def library(folder: Path) -> Path:
    if not shutil.which("gcc"):
        pytest.skip("no C compiler")
    (folder / "clock.c").write_text(SHIM)
    made = folder / "clock.so"
    subprocess.run(["gcc", "-O1", "-shared", "-fPIC", "-o", made, folder / "clock.c"], check=True)
    return made


CASES = {jump: 3}
"""How often it is done in the long form."""
