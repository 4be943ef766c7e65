"""Mutations of healthy files: flips, fills, cuts, splices, sizes, numbers and words, LIME, YAML."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from stages.lqcd.lattice.formats import lime

Mutation = Callable[[Random, bytearray], bytearray]

INTEGERS = (0, 1, 2, 3, 5, 127, 255, 256, 4096, 65535, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63, 2**64 - 1)
NUMBERS = ("0", "-1", "1", "7", "8", "64", "9999999999", "1e308", "1e999999999", "nan", "inf", "-0.0", "0x10")
NUMBERS += ("9" * 5000, "1_000", "\u0664", "", "4 4", "true", "2.5", "'", "\x00")
WORDS = ("", "x", "a" * 300, "é", "\x1b[31m", "$", "<", ">", "&", "%s", "{}", "../..", "\n", "END_HEADER")


@dataclass(frozen=True)
class Shape:
    """A healthy file: the bytes of its header, which are mutated as often as all its data, and its kind."""

    content: bytes
    header: int
    lime: bool = False
    text: bool = False

    def mutated(self, rng: Random) -> bytes:
        """One to three mutations of the file."""
        content = bytearray(self.content)
        choices = TEXT if self.text else (*BINARY, *LIME) if self.lime else BINARY
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            content = rng.choice(choices)(rng, content, self.header)
        return bytes(content)


def _place(rng: Random, content: bytearray, header: int) -> int:
    """A byte of the header, or of the whole file."""
    end = min(header, len(content)) if rng.random() < 0.5 else len(content)
    return rng.randrange(max(1, end))


def _length(rng: Random, longest: int) -> int:
    """Short spans as likely as long ones."""
    return int(2 ** rng.uniform(0, max(1, longest).bit_length())) if longest > 0 else 0


def flips(rng: Random, content: bytearray, header: int) -> bytearray:
    """One to eight bits."""
    for _ in range(rng.randint(1, 8) if content else 0):
        content[_place(rng, content, header)] ^= 1 << rng.randrange(8)
    return content


def fill(rng: Random, content: bytearray, header: int) -> bytearray:
    """A span of zeros, ones or random bytes."""
    begin = _place(rng, content, header)
    span = min(_length(rng, len(content) // 2), len(content) - begin)
    kind = rng.randrange(3)
    content[begin : begin + span] = rng.randbytes(span) if kind == 2 else bytes([255 * kind]) * span
    return content


def truncation(rng: Random, content: bytearray, header: int) -> bytearray:
    """The end is cut off."""
    return content[: _place(rng, content, header)]


def growth(rng: Random, content: bytearray, header: int) -> bytearray:
    """Bytes are appended."""
    return content + rng.randbytes(_length(rng, 4096))


def splice(rng: Random, content: bytearray, header: int) -> bytearray:
    """A span is copied elsewhere, over what stands there or between it; or taken away."""
    begin, target = _place(rng, content, header), _place(rng, content, header)
    span = content[begin : begin + _length(rng, len(content) // 2)]
    kind = rng.randrange(3)
    if kind == 0:
        content[target : target + len(span)] = span
    elif kind == 1:
        content[target:target] = span
    else:
        del content[begin : begin + len(span)]
    return content


def size_field(rng: Random, content: bytearray, header: int) -> bytearray:
    """An aligned binary integer of the header, of any width and order, becomes a telling one."""
    width = rng.choice((2, 4, 8))
    begin = _place(rng, content, header) // width * width
    value = (rng.choice(INTEGERS) + rng.choice((-1, 0, 0, 1))) % 2 ** (8 * width)
    content[begin : begin + width] = value.to_bytes(width, rng.choice(("big", "little")))
    return content


def printed_number(rng: Random, content: bytearray, header: int) -> bytearray:
    """A number printed in the header becomes another; its length may change."""
    return _replaced(rng, content, header, rb"[0-9][0-9a-fA-F.+-]*", rng.choice(NUMBERS))


def word(rng: Random, content: bytearray, header: int) -> bytearray:
    """A word of the header becomes another."""
    return _replaced(rng, content, header, rb"[A-Za-z_]{2,}", rng.choice(WORDS))


def line_moved(rng: Random, content: bytearray, header: int) -> bytearray:
    """A line of a text is repeated, indented, or moved."""
    lines = content.split(b"\n")
    begin, target = rng.randrange(len(lines)), rng.randrange(len(lines))
    line = lines[begin] if rng.random() < 0.5 else lines.pop(begin)
    lines.insert(target, b" " * rng.choice((0, 0, 1, 2, 4)) + line)
    return bytearray(b"\n".join(lines))


YAML_SYNTAX = (
    ": ",
    "- ",
    "? ",
    "&a ",
    "*a",
    "<<: *a",
    "<<: ",
    "!!omap ",
    "!!set ",
    "!!python/name:os.system ",
)
YAML_TOKENS = (
    "!x ",
    "| ",
    "> ",
    "{",
    "}",
    "[",
    "]",
    "[[[[",
    "#",
    "---\n",
    "...\n",
    "%YAML 1.1\n",
    "\t",
    "\0",
)
YAML_VALUES = (
    "{a: &a [x, x]}",
    "'",
    '"',
    '"\\x00"',
    "null",
    "~",
    "2001-01-01",
    "1" * 5000,
    "[" * 200,
    "\ufeff",
)
YAML_PIECES = (*YAML_SYNTAX, *YAML_TOKENS, *YAML_VALUES)


def yaml_piece(rng: Random, content: bytearray, header: int) -> bytearray:
    """A piece of YAML's syntax, put in or over."""
    begin = _place(rng, content, header)
    piece = rng.choice(YAML_PIECES).encode()
    content[begin : begin + rng.choice((0, 1, len(piece)))] = piece
    return content


def record(rng: Random, content: bytearray, header: int) -> bytearray:
    """A record of a LIME file is dropped, repeated, moved, renamed, or gets other flags, length or text."""
    spans = _records(bytes(content))
    if not spans:
        return flips(rng, content, header)
    pieces = [content[begin:end] for begin, end in spans]
    rest = content[spans[-1][1] :]
    chosen = rng.randrange(len(pieces))
    piece = pieces[chosen]
    kind = rng.randrange(7)
    if kind == 0:
        del pieces[chosen]
    elif kind == 1:
        pieces.insert(rng.randrange(len(pieces) + 1), piece)
    elif kind == 2:
        pieces.insert(rng.randrange(len(pieces)), pieces.pop(chosen))
    elif kind == 3:
        other = rng.choice(pieces)
        piece[16:144] = other[16:144]
    elif kind == 4:
        piece[6:8] = rng.randbytes(2)
    elif kind == 5:
        piece[8:16] = ((rng.choice(INTEGERS) + rng.randint(-8, 8)) % 2**64).to_bytes(8, "big")
    else:
        payload = bytearray(piece[144:])
        changed = rng.choice((printed_number, word, flips))(rng, payload, len(payload))
        changed += b"\0" * (-len(changed) % 8)
        piece[8:16], piece[144:] = struct.pack(">Q", len(changed)), changed
    return bytearray(b"".join(pieces)) + rest


def _records(content: bytes) -> list[tuple[int, int]]:
    """First and last byte of every record, as far as the chain of headers holds."""
    spans, position = [], 0
    while position + lime.HEADER.size <= len(content):
        magic, _, _, length, _ = lime.HEADER.unpack_from(content, position)
        end = position + lime.HEADER.size + (length + 7) // 8 * 8
        if magic != lime.MAGIC or end > len(content):
            break
        spans.append((position, end))
        position = end
    return spans


def _replaced(rng: Random, content: bytearray, header: int, pattern: bytes, text: str) -> bytearray:
    found = list(re.finditer(pattern, content[:header]))
    if not found:
        return flips(rng, content, header)
    match = rng.choice(found)
    content[match.start() : match.end()] = text.encode()
    return content


BINARY = (flips, flips, fill, truncation, growth, splice, size_field, printed_number, word)
LIME = (record, record, record)
TEXT = (flips, fill, truncation, splice, printed_number, printed_number, word, line_moved, line_moved)
TEXT += (yaml_piece, yaml_piece)
