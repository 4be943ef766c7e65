"""Files that appear whole or not at all, whatever lies at their names."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A new file to write, which becomes `path` by one rename once it is on disk; removed if the body raises.

    Its own name is random and was free. A link at `path` is replaced, and what it points to stays.

    Raises OSError.
    """
    draft = path.with_name(f".{path.name[:40]}.{uuid4().hex}")
    try:
        with open(draft, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    finally:
        with suppress(OSError):
            draft.unlink()
