"""The dashboard of a store with 10^5 chunks: commits are seen within a second, frames are short."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator

import pytest
from test_dashboard_in_browser import served

from pipeline import Plan, Store
from pipeline.running.event_log import EventLog
from pipeline.worker.events import ChunkState, Event, chunk_identity
from recorded_chunks import Writer, fill
from support.chromium import Browser, browser, find_browser

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(900)]
CHUNKS, LEFT = 100_000, 24
COMMITS = 16
PAUSE = 0.9
"""Seconds between two commits."""

FRAME, LATENCY = 100.0, 1.0
"""Milliseconds of a frame and seconds until a commit is seen, at most."""

BUSY = 2
"""Processes that ask for each core, beyond which frames and times are not this page's."""

WATCH = """new Promise(done => {
    const told = [], frames = [], began = performance.now();
    const said = () => {
        for (const model of Bokeh.documents[0]._all_models.values()) {
            const match = /<b>([0-9,]+)<.b>of [0-9,]+ chunks are stored/.exec(model.text ?? "");
            if (match) return Number(match[1].replaceAll(",", ""));
        }
    };
    let last = began;
    const frame = now => {
        frames.push(now - last);
        last = now;
        const count = said();
        if (told.at(-1)?.[1] != count) told.push([Date.now() / 1000, count]);
        now - began < SECONDS * 1000 ? requestAnimationFrame(frame) : done(JSON.stringify({told, frames}));
    };
    requestAnimationFrame(frame);
})"""


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    program = find_browser()
    if program is None:
        pytest.skip("no Chromium is installed")
    with browser(program, tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, Plan]:
    store = Store(tmp_path_factory.mktemp("large") / "store")
    return store, fill(store, CHUNKS, LEFT)


def test_a_commit_is_seen_within_a_second_and_no_frame_is_long(large, window):
    store, planned = large
    if (load := os.getloadavg()[0]) > BUSY * (os.cpu_count() or 1):
        pytest.skip(f"the machine has other work (load average {load:.0f}): nothing to be said of frames")
    first = len(planned.everything) - LEFT
    committed: dict[int, float] = {}

    def commit() -> None:
        time.sleep(3.0)
        with EventLog(store, "run") as log:
            writer = Writer(store, "run")
            for number in range(first, first + COMMITS):
                chunk = planned.everything[number]
                writer.write(chunk, number)
                about = chunk_identity(chunk.node.name, chunk.node.stage.name, chunk.key, chunk.coordinates)
                log(Event(ChunkState.DONE, worker="tls://127.0.0.1:40000", **about))
                committed[number + 1] = time.time()
                time.sleep(PAUSE)

    began: list[threading.Thread] = []

    def ready(text: str) -> bool:
        """The page has all of the log; then commits begin. Records are read all the while."""
        whole = f"of {first + LEFT:,} chunks" in text and "of the log" not in text
        if whole and not began:
            began.append(threading.Thread(target=commit))
            began[0].start()
        return whole

    watch = WATCH.replace("SECONDS", str(3.0 + COMMITS * PAUSE + 3.0))
    with served(store.path.parent, "store") as root:
        seen = window.look(f"{root}/quarkline", 1280, ready, after=watch)
    began[0].join()
    answer = json.loads(seen.answer)
    frames, told = answer["frames"][1:], answer["told"]
    waits = [next(at for at, count in told if count >= number) - at for number, at in committed.items()]
    figures = {
        "chunks": first,
        "frames": len(frames),
        "longest ms": max(frames),
        "over 50 ms": sum(frame > 50 for frame in frames),
        "until seen s": (min(waits), max(waits)),
    }
    print(json.dumps(figures))
    assert told[-1][1] == first + COMMITS and not seen.errors
    assert max(waits) < LATENCY and max(frames) < FRAME, figures
