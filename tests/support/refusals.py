"""Calls that must be refused in words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from stages.base.errors import InputError


def refuses(message: str, call: Callable[..., Any], *arguments: Any, **options: Any) -> None:
    """Assert that a call raises an `InputError` whose text `message` is found in."""
    with pytest.raises(InputError, match=message):
        call(*arguments, **options)
