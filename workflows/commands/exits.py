"""Exit codes of commands, and the error of a command that failed without anybody's mistake."""

from __future__ import annotations

from stages.base.errors import InputError

EXIT_CODES = {"done": 0, "failed": 1, "mistake": 2, "time limit": 3, "elsewhere": 4, "interrupted": 130}
"""failed: something failed or is missing. mistake: in the command, a file or a store. elsewhere: the rest is
in work by other drivers of the store."""


class FailedError(InputError):
    """Error of a command that cannot give what it was asked for, without anybody's mistake: exit code 1."""
