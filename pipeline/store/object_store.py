"""A store on object storage (S3 and what else fsspec knows), for reading: chunks are fetched when used.

A packed chunk is one object, read at once; of a folder those pieces are read that are used. Its record is
written last, so that a folder without one is no chunk yet.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.store.errors import UnreadableChunkError
from pipeline.store.mark import MARK, format_in
from pipeline.store.packed import unpacked
from pipeline.store.record import RECORD, record_in
from pipeline.store.shelves import PACKED, chunk_in
from pipeline.store.store import Store
from stages.base.errors import InputError

if TYPE_CHECKING:
    import zarr

_URL = re.compile(r"(?P<scheme>[a-z][a-z0-9+]+):/+(?P<rest>.*)")

NEEDED = "pip install -e '.[s3]' in quarkline's checkout"


def url_in(place: object) -> str | None:
    """The URL that a text or a path is, also one that lost a slash as a path; None for a folder."""
    text = str(place)
    match = _URL.fullmatch(text) if "://" in text or isinstance(place, Path) else None
    return f"{match['scheme']}://{match['rest'].rstrip('/')}" if match else None


def store_at(place: Store | str | os.PathLike[str]) -> Store:
    """The store itself, that in a folder, or that at a URL, for reading.

    Raises:
        InputError: there is none, or it cannot be reached.
    """
    if isinstance(place, Store) or (url := url_in(place)) is None:
        return Store.existing(place)
    store = ObjectStore(url)
    if not store.exists():
        raise InputError(f"there is no store at {url}")
    return store


@contextmanager
def reaching(url: str) -> Iterator[None]:
    """Turn whatever a library for remote files raises into one clear message."""
    try:
        yield
    except InputError:
        raise
    except ImportError as error:
        raise InputError(f"{url} needs a library that is not installed ({error}): {NEEDED}") from error
    except Exception as error:  # of the libraries for each kind of storage
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(
            f"{url} cannot be reached: {text}; credentials and addresses are those of the library for it, "
            "as AWS_ENDPOINT_URL, AWS_PROFILE"
        ) from error


class ObjectStore(Store):
    """A store at a URL such as `s3://bucket/store`; it is read only.

    Raises:
        InputError: it cannot be reached, or is of a format unknown here.
    """

    def __init__(self, url: str) -> None:
        with reaching(url):
            from upath import UPath

            object.__setattr__(self, "path", UPath(url))
            self.path.fs.invalidate_cache()  # type: ignore[attr-defined]
            try:
                text = (self.path / MARK).read_text()
            except FileNotFoundError:
                text = ""
        object.__setattr__(self, "_is_there", bool(text))
        if text:
            format_in(text, url)

    def exists(self) -> bool:
        """True if there is a store."""
        return bool(self.__dict__["_is_there"])

    def inside(self, *names: str) -> Path:
        """A file or folder of the store's own, by its names: there are no links."""
        return self.path.joinpath(*names)

    def create(self) -> None:
        """Raise InputError: nothing is written here."""
        raise InputError(f"store {self.path} is on object storage, and only read: quarkline pull brings it")

    @contextmanager
    def writing(self, what: str) -> Iterator[None]:
        """Raise InputError: nothing is written here."""
        self.create()
        yield

    @cached_property
    def _places(self) -> dict[str, dict[str, str]]:
        """Path of each chunk by stage and key, by one listing."""
        places: dict[str, dict[str, str]] = {}
        root = self.path.path.rstrip("/")  # type: ignore[attr-defined]
        with reaching(str(self.path)):
            for path in self.path.fs.find(root):  # type: ignore[attr-defined]
                inside = path.removeprefix(root).lstrip("/")
                stage, key, place = chunk_in(inside) or ("", "", "")
                if place and inside in (place, f"{place}/{RECORD}"):
                    places.setdefault(stage, {})[key] = f"{root}/{place}"
        return places

    def has(self, stage: str, key: str) -> bool:
        """True if a chunk is there."""
        return key in self._places.get(stage, ())

    def each_key(self, stage: str) -> Iterator[str]:
        """The keys of all chunks of a stage."""
        return iter(self._places.get(stage, ()))

    def stages(self) -> list[str]:
        """Names of the stages that have chunks."""
        return sorted(self._places)

    def gaps(self, stage: str, wanted: Iterable[str]) -> dict[str, bool]:
        """Chunks of a stage that are not there; what is in those that are is looked at when they are read."""
        return dict.fromkeys(set(wanted) - self.keys(stage), False)

    @contextmanager
    def reading(self, stage: str, key: str) -> Iterator[None]:
        """Turn what a chunk raises while it is read into one clear message, as for a folder."""
        with super().reading(stage, key):
            try:
                yield
            except (InputError, OSError, ValueError, LookupError, ArithmeticError, TypeError, RecursionError):
                raise
            except Exception as error:  # of the libraries for each kind of storage
                name = f"chunk {stage}/{key[:12]} of store {self.path}"
                raise UnreadableChunkError(f"{name} cannot be read ({error}): try again") from error

    def _content(self, stage: str, key: str) -> tuple[dict[str, Any], dict[str, bytes] | None]:
        place = self._places.get(stage, {}).get(key)
        if place is None:
            raise FileNotFoundError(f"no chunk {stage}/{key}")
        fetch = self.path.fs.cat_file  # type: ignore[attr-defined]
        if place.endswith(PACKED):
            files = unpacked(fetch(place))
            return record_in(files[RECORD], stage, key), files
        return record_in(fetch(f"{place}/{RECORD}"), stage, key), None

    def open(self, stage: str, key: str) -> zarr.Group:
        """The chunk's Zarr group, compared with its record where it is read."""
        from zarr.storage import FsspecStore

        from pipeline.store.group import open_packed, read_group, recorded_sums

        with self.reading(stage, key):
            record, files = self._content(stage, key)
            sums = recorded_sums(record)
            if files is not None:
                return open_packed(files, sums)
            place = self._places[stage][key]
            objects = FsspecStore.from_url(self.path.fs.unstrip_protocol(place), read_only=True)  # type: ignore[attr-defined]
            return read_group(objects, sums)
