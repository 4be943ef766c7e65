"""Durations as people and batch systems write them."""

from __future__ import annotations

import re

_UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}


def seconds(text: str) -> int:
    """Seconds of a duration: 90, 90s, 45m, 1h30m or 2d; or HH:MM:SS and D-HH:MM:SS, as batch systems have it.

    Raises:
        ValueError: it is written otherwise.
    """
    if match := re.fullmatch(r"(?:(\d+)-)?(\d+):(\d\d):(\d\d)", text, flags=re.ASCII):
        days, hours, minutes, rest = (int(part or 0) for part in match.groups())
        return 86400 * days + 3600 * hours + 60 * minutes + rest
    if re.fullmatch(r"\d+", text, flags=re.ASCII):
        return int(text)
    if not re.fullmatch(r"(\d+[dhms])+", text, flags=re.ASCII):
        raise ValueError(f"{text!r} is no duration; write 90s, 45m, 1h30m or 01:30:00")
    return sum(int(number) * _UNITS[unit] for number, unit in re.findall(r"(\d+)([dhms])", text))
