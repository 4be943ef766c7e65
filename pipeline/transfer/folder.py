"""A store in reach as files, whose chunks are linked or copied into another one."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pipeline.store.durable import delete
from pipeline.store.store import Store
from pipeline.transfer.offer import Offer

MOVERS = 4

_NO_LINKS = (errno.EXDEV, errno.EPERM, errno.EACCES, errno.ENOSYS, errno.EOPNOTSUPP, errno.EMLINK)


@dataclass(frozen=True)
class Folder:
    """A store whose files are here; `links`: hard links instead of copies, where the file system has them."""

    store: Store
    target: Store
    links: bool

    @property
    def takes_room(self) -> bool:
        """False if what comes from here is another name of the same files."""
        return not self.links or self.store.path.stat().st_dev != self.target.path.stat().st_dev

    def bring(self, offers: Sequence[Offer], folder: Path, came: Callable[[int], None]) -> dict[str, str]:
        """Bring chunks into a folder; returns reasons by the places of those that cannot be read."""
        problems = {}
        with ThreadPoolExecutor(MOVERS) as pool:
            for offer, reason in zip(offers, pool.map(partial(self._draft, folder), offers), strict=True):
                came(offer.nbytes)
                if reason:
                    problems[offer.place] = reason
        return problems

    def _draft(self, folder: Path, offer: Offer) -> str:
        """Make a draft of a chunk's file or folder; the reason if that cannot be read."""
        source, draft = self.store.path / offer.place, folder / offer.place
        files = [source]
        if source.is_dir():
            files = [Path(parent, name) for parent, _, names in os.walk(source) for name in names]
        with self.target.writing(str(offer)):
            delete(draft)
            for file in files:
                copy = draft / file.relative_to(source)
                copy.parent.mkdir(parents=True, exist_ok=True)
                if self.links and _linked(file, copy):
                    continue
                try:
                    content = file.open("rb")
                except OSError as error:
                    return f"cannot be read: {error.strerror or error}"
                with content, copy.open("xb") as written:
                    shutil.copyfileobj(content, written, 1 << 22)
        return ""


def _linked(file: Path, copy: Path) -> bool:
    """Link a file; False where that cannot be done, or it is gone."""
    try:
        os.link(file, copy)
    except OSError as error:
        if error.errno not in (errno.ENOENT, *_NO_LINKS):
            raise
        return False
    return True
