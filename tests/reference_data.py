"""The files of other codes that tests compare with, from checkouts of their public repositories:

    python tests/reference_data.py                        # what is needed: repository, path, bytes, SHA-256
    python tests/reference_data.py FOLDER CHECKOUT ...    # copy it into FOLDER: QUARKLINE_REFERENCE_DATA

Nothing is downloaded. The numbers that the other codes print for these files are in tests/reference.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

NUMBERS = Path(__file__).with_name("reference")


class ReferenceFile(NamedTuple):
    """A file: its place in the folder of the data, its origin, and its content's digest."""

    place: str
    repository: str
    path: str
    nbytes: int
    digest: str

    def __str__(self) -> str:
        return f"github.com/{self.repository} {self.path} {self.nbytes} {self.digest}"

    def in_checkouts(self, checkouts: list[Path]) -> Path | None:
        """The file of this content in one of the checkouts."""
        found = (checkout / self.path for checkout in checkouts)
        return next((path for path in found if path.is_file() and digest_of(path) == self.digest), None)


def reference_files() -> Iterator[ReferenceFile]:
    for line in (NUMBERS / "files.txt").read_text().splitlines():
        if not line.startswith("#"):
            place, repository, path, nbytes, digest = line.split()
            yield ReferenceFile(place, repository, path, int(nbytes), digest)


def digest_of(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest()


def copy_to(folder: Path, checkouts: list[Path]) -> list[ReferenceFile]:
    """Copies the files and the numbers; returns the files that no checkout has."""
    shutil.copytree(NUMBERS, folder, dirs_exist_ok=True)
    missing = []
    for file in reference_files():
        target = folder / file.place
        if target.is_file() and digest_of(target) == file.digest:
            continue
        if source := file.in_checkouts(checkouts):
            target.parent.mkdir(exist_ok=True)
            shutil.copy(source, target)
        else:
            missing.append(file)
    return missing


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("folder", nargs="?", type=Path, metavar="FOLDER", help="gets the files")
    arguments.add_argument("checkouts", nargs="*", type=Path, metavar="CHECKOUT", help="of the repositories")
    chosen = arguments.parse_args()
    if chosen.folder is None:
        print(*reference_files(), sep="\n")
        return 0
    if missing := copy_to(chosen.folder, chosen.checkouts):
        print("no checkout has these files with this content:", *missing, sep="\n  ")
        return 1
    print(f"export QUARKLINE_REFERENCE_DATA={chosen.folder.absolute()}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
