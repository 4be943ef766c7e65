"""Files that appear whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4

from stages.lqcd.lattice.formats.binary import fault


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write that becomes `path` by one rename once it is on disk; removed if the body raises.

    Raises InputError where the file cannot be written: no such folder, no permission, disk full.
    """
    temporary = path.with_name(f".{path.name}.{uuid4().hex}")
    try:
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        remedy = "check its folder, the permissions and the space on the disk"
        raise fault(path, f"cannot be written ({error.strerror})", remedy) from error
    finally:
        with suppress(OSError):
            temporary.unlink()
