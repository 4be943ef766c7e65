"""A store on another machine, reached by the system's `ssh` and `rsync`, which know its accounts and keys."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from pipeline.running.event_log import LOG, TALLY
from pipeline.store.errors import StoreError, StoreFullError
from pipeline.store.mark import FORMAT, MARK, TEXT, format_in
from pipeline.transfer.offer import Offer
from stages.base.errors import InputError

_PLACE = re.compile(r"(?P<host>(?:[^/:@\s]+@)?(?:\[[^\]\s]+\]|[^/:@\s]+)):(?P<path>.*)")

OPTIONS = ("ConnectTimeout=20", "ServerAliveInterval=15", "ServerAliveCountMax=4")
"""A connection that is not made, or dies, is noticed within a minute."""

SILENCE = 120
"""Seconds without a byte after which rsync gives up."""

ANSWER = 3600
"""Seconds that a script on the other machine may take, a flush of its disks among them."""

PARTIAL, VANISHED = 23, 24
"""Exit codes of rsync: some files did not come; some were gone."""

_LOGS = (f".runs/*/{LOG}", f".runs/*/{TALLY}")
ABOUT = (MARK, ".ledger.jsonl", *(f".workflows/*.{end}" for end in ("json", "yaml")), *_LOGS)

_STATE = f"""
link=$(find "$1/" -maxdepth 1 -type l -name '.*' 2>/dev/null | head -n 1)
if [ -n "$link" ]; then echo "$link is a link, and a store has none inside: remove it" >&2; exit 8; fi
if [ ! -e "$1" ]; then echo absent
elif [ -f "$1/{MARK}" ]; then cat "$1/{MARK}" || exit 7
elif [ ! -d "$1" ] || [ -n "$(ls -A "$1")" ]; then echo foreign
else echo absent
fi
"""

_CREATE = f"""
mkdir -p "$1/.tmp" "$1/.runs" "$1/.workflows" "$1/$2" && cd "$1" || exit 8
if ! grep -q '"format": {FORMAT}' {MARK} 2>/dev/null; then
  printf '%s' '{TEXT}' > "$2/{MARK}" && mv "$2/{MARK}" {MARK} || exit 8
fi
df -Pk . | awk 'NR == 2 {{ print $4 }}'
"""

_PUBLISH = """
cd "$1" || exit 8
sync -f . 2>/dev/null || sync
while read -r name to; do
  from=$2/$name
  for folder in "${to%%/*}" "${to%/*}"; do
    if [ -L "$folder" ]; then echo "$folder is a link, and a store has none inside: remove it" >&2; exit 8; fi
  done
  mkdir -p "${to%/*}" || exit 8
  if [ -e "$to" ]; then :
  elif [ -d "$from" ]; then mv -T "$from" "$to" 2>/dev/null || [ -e "$to" ] || mv "$from" "$to" || exit 8
  else ln "$from" "$to" 2>/dev/null || [ -e "$to" ] || mv "$from" "$to" || exit 8
  fi
  rm -rf "$from"
done
sync -f . 2>/dev/null || sync
"""
"""The first chunk of a name stays; each appears as a whole, after it is on the disk."""


def remote_folder(text: str) -> tuple[str, str] | None:
    """The machine and the folder there that `user@host:/path` names; None for a path of this machine.

    Raises:
        InputError: it names a machine, and no folder there.
    """
    match = _PLACE.fullmatch(text)
    if match is None:
        return None
    if not match["path"] or match["host"].startswith("-"):
        raise InputError(f"{text!r} names no folder of a machine: write user@host:/folder/of/store")
    return match["host"], match["path"]


class Host:
    """A connection to another machine, one login for all that is done there."""

    def __init__(self, machine: str, folder: str, command: str = "ssh") -> None:
        words = shlex.split(command)
        for program in (words[0] if words else "ssh", "rsync"):
            if shutil.which(program) is None:
                raise InputError(f"{program} is not installed here: stores move by it between machines")
        self.place = f"{machine}:{folder}"
        self._machine, self._folder = machine, folder
        self._sockets = tempfile.mkdtemp(prefix="ql-", dir="/tmp")
        shared = (f"ControlPath={self._sockets}/%C", "ControlMaster=auto", "ControlPersist=60")
        batch = () if sys.stdin is not None and sys.stdin.isatty() else ("BatchMode=yes",)
        options = [word for option in (*OPTIONS, *shared, *batch) for word in ("-o", option)]
        self._ssh = [*words, *options]

    def __enter__(self) -> Host:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError, subprocess.TimeoutExpired):
            closing = [*self._ssh, "-O", "exit", self._machine]
            subprocess.run(closing, capture_output=True, check=False, timeout=10)
        shutil.rmtree(self._sockets, ignore_errors=True)

    def has_store(self) -> bool:
        """True if the folder is a store; False where one may be made.

        Raises:
            InputError: no connection, a folder that is no store or of another format.
        """
        state = self._script(_STATE, self._folder).strip()
        if state == "foreign":
            raise InputError(f"{self.place} is not a quarkline store: choose another folder")
        if state == "absent":
            return False
        return format_in(state, self.place) > 0

    def files(self) -> Iterator[tuple[str, int]]:
        """Paths below the store's folder, of all chunks, and bytes of all files."""
        with tempfile.TemporaryDirectory() as nowhere:
            for line in self._rsync(["-rn", "--exclude=/.*", "--out-format=%l %n", self._there(), nowhere]):
                nbytes, _, path = line.partition(" ")
                if nbytes.isdigit() and not path.endswith("/"):
                    yield path, int(nbytes)

    def bring_about(self, folder: Path) -> None:
        """Bring all that a store has beside chunks into a folder here, which becomes a store without any."""
        (folder / MARK).write_text(TEXT)
        named = [f"--include=/{name}" for name in ABOUT]
        folders = ["--include=/.workflows/", "--include=/.runs/", "--include=/.runs/*/"]
        list(self._rsync(["-rt", *folders, *named, "--exclude=*", self._there(), f"{folder}/"]))

    def bring(self, offers: Sequence[Offer], folder: Path, came: Callable[[int], None]) -> dict[str, str]:
        """Bring chunks into a folder here; what came before is used."""
        self._move([offer.place for offer in offers], self._there(), f"{folder}/", came)
        return {}

    def deliver(
        self, moves: Sequence[tuple[str, str]], folder: Path, inside: str, came: Callable[[int], None]
    ) -> None:
        """Send chunks to a folder inside the store's; where all bytes are the same, they get their names.

        Raises:
            StoreError: the bytes that lie there are others than were sent.
        """
        places = [place for place, _ in moves]
        self._move(places, f"{folder}/", self._there(inside), came)
        options = ["-rnc", "--files-from=-", "--from0", "--out-format=%n", f"{folder}/", self._there(inside)]
        differing = (line for line in self._rsync(options, places) if not line.endswith("/"))
        if names := list(differing):
            raise StoreError(
                f"{self.place}: {names[0]} arrived with other bytes than were sent and got no name: see to "
                "the disk there, and give the same command again"
            )
        text = "".join(f"{place} {end}\n" for place, end in moves)
        self._script(_PUBLISH, self._folder, inside, text=text)

    def send_about(self, names: Sequence[str], folder: Path) -> None:
        """Replace files that the store has beside chunks."""
        self._move(names, f"{folder}/", self._there(), lambda nbytes: None)

    def create(self, inside: str) -> int:
        """Make the store, and a folder in it; returns the bytes that are free there.

        Raises:
            StoreError: it cannot be written.
        """
        return 1024 * int(self._script(_CREATE, self._folder, inside).split()[-1])

    def append(self, name: str, text: str) -> None:
        """Append to a file of the store."""
        self._script('cat >> "$1/$2" || exit 8', self._folder, name, text=text)

    def remove(self, inside: str) -> None:
        """Remove a folder that was made for what arrives."""
        self._script('rm -rf "$1/$2"; rmdir "$1/${2%/*}" 2>/dev/null; true', self._folder, inside)

    def _there(self, inside: str = "") -> str:
        return f"{self.place.rstrip('/')}/{inside}"

    def _script(self, script: str, *arguments: str, text: str = "") -> str:
        words = ["sh", "-c", script, "sh", *arguments]
        command = [*self._ssh, self._machine, shlex.join(words)]
        try:
            done = subprocess.run(
                command, input=text, capture_output=True, text=True, check=False, timeout=ANSWER
            )
        except subprocess.TimeoutExpired:
            raise InputError(f"{self.place} does not answer: try again later") from None
        if done.returncode:
            raise self._fault(done.returncode, done.stderr)
        return done.stdout

    def _move(self, places: Sequence[str], here: str, there: str, came: Callable[[int], None]) -> None:
        options = ["-rt", "--partial", "--files-from=-", "--from0", "--out-format=%l %n", here, there]
        for line in self._rsync(options, places):
            nbytes, _, path = line.partition(" ")
            if nbytes.isdigit() and not path.endswith("/"):
                came(int(nbytes))

    def _rsync(self, options: Sequence[str], places: Iterable[str] = ()) -> Iterator[str]:
        command = ["rsync", "-s", f"--timeout={SILENCE}", "-e", shlex.join(self._ssh), *options]
        with tempfile.TemporaryFile("w+") as said, tempfile.TemporaryFile() as names:
            names.write(b"".join(os.fsencode(place) + b"\0" for place in places))
            names.seek(0)
            pipes = {"stdin": names, "stdout": subprocess.PIPE, "stderr": said}
            with subprocess.Popen(command, text=True, errors="replace", **pipes) as process:  # type: ignore[call-overload]
                for line in process.stdout:
                    yield line.rstrip("\n")
            said.seek(0)
            if process.returncode not in (0, PARTIAL, VANISHED):
                raise self._fault(process.returncode, said.read())

    def _fault(self, code: int, said: str) -> InputError:
        """What went wrong, in one sentence with the last thing that ssh or rsync said of it."""
        lines = [line for line in said.splitlines() if line.strip() and not line.startswith("rsync error")]
        last = lines[-1].strip() if lines else f"exit code {code}"
        if "No space left" in said or "Disk quota exceeded" in said:
            return StoreFullError(
                f"no room while {self.place} was read or written: make room; what has come is kept"
            )
        if code == 127 or "rsync: not found" in said or "rsync: command not found" in said:
            return InputError(f"{self.place}: rsync is not installed there: {last}")
        if code in (7, 8) or ("Permission denied" in last and "publickey" not in last):
            return StoreError(f"{self.place} cannot be read or written: {last}")
        return InputError(
            f"no connection to {self.place}: {last}; once `{shlex.join([*self._ssh[:1], self._machine])}` "
            "works, the same command goes on"
        )
