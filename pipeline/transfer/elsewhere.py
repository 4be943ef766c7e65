"""A place elsewhere, as pulling and pushing need it, whatever reaches it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol


class Elsewhere(Protocol):
    """A folder for a store on another machine, or on object storage."""

    @property
    def place(self) -> object:
        """The place's name for people."""

    def has_store(self) -> bool:
        """True if there is a store; False where one may be made. Raises InputError."""

    def files(self) -> Iterator[tuple[str, int]]:
        """Paths below the store's folder, of all chunks, and bytes of all files."""

    def bring_about(self, folder: Path) -> None:
        """Bring all that a store has beside chunks into a folder, which becomes a store without any."""

    def bring(self, places: Sequence[str], folder: Path, came: Callable[[int], None]) -> None:
        """Bring files and folders of the store into a folder here."""

    def create(self, inside: str) -> int:
        """Make the store, and a folder for what arrives; returns the bytes that are free there."""

    def deliver(
        self, moves: Sequence[tuple[str, str]], folder: Path, inside: str, came: Callable[[int], None]
    ) -> None:
        """Send chunks, by their places here and there, and give them their names once they are whole."""

    def send_about(self, names: Sequence[str], folder: Path) -> None:
        """Replace files that the store has beside chunks."""

    def append(self, name: str, text: str) -> None:
        """Append to a file of the store."""

    def remove(self, inside: str) -> None:
        """Remove the folder for what arrives."""
