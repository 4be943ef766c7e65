"""A store on object storage, by fsspec: fetched from, and written to with each record last."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path

from pipeline.store.errors import StoreError
from pipeline.store.mark import MARK, TEXT
from pipeline.store.object_store import ObjectStore, reaching
from pipeline.store.record import RECORD
from pipeline.transfer.host import ABOUT, Host
from pipeline.transfer.offer import Offer

TOGETHER = 64
"""Objects that are fetched or sent side by side at most."""


class Bucket:
    """A folder of a bucket. One sender at a time: object storage has no names that are given only once.

    Raises:
        InputError: it cannot be reached, or is of a format unknown here.
    """

    def __init__(self, url: str) -> None:
        self.place = url
        self._store = ObjectStore(url)
        self._fs, self._root = self._store.path.fs, self._store.path.path.rstrip("/")  # type: ignore[attr-defined]
        self._inside: dict[str, list[tuple[str, int]]] = {}
        """Files of each folder or file at a chunk's place, as they were listed."""

    def has_store(self) -> bool:
        """True if there is a store."""
        return self._store.exists()

    def files(self) -> Iterator[tuple[str, int]]:
        """Paths below the folder of all objects that are whole chunks' and bytes of each."""
        listed = self._listed()
        records = {path.rpartition("/")[0] for path, _ in listed if path.endswith(f"/{RECORD}")}
        for path, nbytes in listed:
            parts = path.split("/")
            folder = next((p for n in range(2, 4) if (p := "/".join(parts[:n])) in records), None)
            whole = folder if folder is not None else path if path.endswith(".zip") else None
            if whole is not None:
                self._inside.setdefault(whole, []).append((path, nbytes))
                yield path, nbytes

    def bring_about(self, folder: Path) -> None:
        """Bring all that a store has beside chunks into a folder, which becomes a store without any."""
        (folder / MARK).write_text(TEXT)
        names = [path for path, _ in self._listed() if any(fnmatchcase(path, name) for name in ABOUT)]
        self._fetch([name for name in names if name != MARK], folder)

    def bring(self, offers: Sequence[Offer], folder: Path, came: Callable[[int], None]) -> dict[str, str]:
        """Bring chunks into a folder here; what came before is used."""
        wanted = [each for offer in offers for each in self._inside[offer.place]]
        held = {path for path, n in wanted if _size(folder / path) == n}
        missing = [(path, n) for path, n in wanted if path not in held]
        came(sum(n for path, n in wanted if path in held))
        for first in range(0, len(missing), TOGETHER):
            some = missing[first : first + TOGETHER]
            self._fetch([path for path, _ in some], folder)
            came(sum(n for _, n in some))
        return {}

    def create(self, inside: str) -> int:
        """Make the store; as much room as there may be."""
        if not self.has_store():
            with reaching(self.place):
                self._fs.pipe_file(self._at(MARK), TEXT.encode())
            self._store = ObjectStore(self.place)
        return sys.maxsize

    def deliver(
        self, moves: Sequence[tuple[str, str]], folder: Path, inside: str, came: Callable[[int], None]
    ) -> None:
        """Send chunks under their own names, a folder's record after its pieces; lengths are compared."""
        pieces: list[tuple[Path, str]] = []
        records: list[tuple[Path, str]] = []
        for place, end in moves:
            for path in _files(folder / place):
                name = str(path.relative_to(folder / place))
                file = (path, end if name == "." else f"{end}/{name}")
                (records if name == RECORD else pieces).append(file)
        for files in (pieces, records):
            for first in range(0, len(files), TOGETHER):
                some = files[first : first + TOGETHER]
                self._send(some)
                came(sum(path.stat().st_size for path, _ in some))

    def send_about(self, names: Sequence[str], folder: Path) -> None:
        """Replace files that the store has beside chunks."""
        self._send([(folder / name, name) for name in names])

    def append(self, name: str, text: str) -> None:
        """Write a file anew with more lines."""
        before = b""
        with reaching(self.place):
            with suppress(FileNotFoundError):
                before = self._fs.cat_file(self._at(name))
            self._fs.pipe_file(self._at(name), before + text.encode())

    def remove(self, inside: str) -> None:
        """Nothing: what is sent has its own name at once."""

    def _at(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _listed(self) -> list[tuple[str, int]]:
        with reaching(self.place):
            self._fs.invalidate_cache()
            found = self._fs.find(self._root, detail=True)
        return [(path[len(self._root) :].lstrip("/"), int(info["size"])) for path, info in found.items()]

    def _fetch(self, names: Sequence[str], folder: Path) -> None:
        for name in names:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if names:
            with reaching(self.place):
                self._fs.get([self._at(name) for name in names], [str(folder / name) for name in names])

    def _send(self, files: Sequence[tuple[Path, str]]) -> None:
        if not files:
            return
        with reaching(self.place):
            self._fs.put([str(path) for path, _ in files], [self._at(name) for _, name in files])
            self._fs.invalidate_cache()
            for path, name in files:
                if self._fs.info(self._at(name))["size"] != path.stat().st_size:
                    raise StoreError(f"{self.place}: {name} arrived in another length: send it again")


RemoteStore = Host | Bucket


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None


def _files(path: Path) -> list[Path]:
    return sorted(each for each in path.rglob("*") if each.is_file()) if path.is_dir() else [path]
