"""Durations as people and batch systems write them, and as people read them."""

from __future__ import annotations

import re
from itertools import pairwise

_UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}


def seconds(text: str) -> int:
    """Seconds of a duration: 90, 90s, 45m, 1h30m or 2d; or HH:MM:SS and D-HH:MM:SS, as batch systems have it.

    Raises:
        ValueError: it is written otherwise.
    """
    if match := re.fullmatch(r"(?:(\d{1,9})-)?(\d{1,9}):(\d\d):(\d\d)", text, flags=re.ASCII):
        days, hours, minutes, rest = (int(part or 0) for part in match.groups())
        return 86400 * days + 3600 * hours + 60 * minutes + rest
    if re.fullmatch(r"\d{1,9}", text, flags=re.ASCII):
        return int(text)
    if not re.fullmatch(r"(\d{1,9}[dhms])+", text, flags=re.ASCII):
        raise ValueError(f"{text!r} is no duration; write 90s, 45m, 1h30m or 01:30:00")
    return sum(int(number) * _UNITS[unit] for number, unit in re.findall(r"(\d+)([dhms])", text))


def duration_text(seconds: float) -> str:
    """A duration for people: `0.041 s`, `38.5 s`, `15m 4s`, `2h 30m`, `3d`.

    Below a minute three digits, down to milliseconds; above, the two largest units, or one if the other is 0.
    """
    if seconds < 59.95:  # what is nearer to a minute would be 60 s
        return f"{round(seconds, 3):.3g} s"
    (large, size), (small, unit) = next(
        (large, small) for large, small in pairwise(_UNITS.items()) if round(seconds) >= large[1]
    )
    whole, rest = divmod(round(seconds / unit), size // unit)
    return f"{whole}{large} {rest}{small}" if rest else f"{whole}{large}"
