"""Blinding: one secret factor on all numbers that are linear in the correlator.

It protects from seeing a result before the analysis is fixed, not from computing it: open data stay open.
"""

from __future__ import annotations

import hmac
import os
import secrets
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from stages.base.errors import InputError


@dataclass(frozen=True)
class Blinding:
    """A factor uniform in 1 - spread ... 1 + spread, from a key; `digest` names it and does not give it away.

    key: at least 128 bits in hexadecimal, random by default; never printed, to be kept away from the results.
    salt: random by default. Raises InputError for a short key, or a spread outside of 0 ... 1.
    """

    key: str = field(default_factory=lambda: secrets.token_hex(16), repr=False)
    spread: float = 0.1
    salt: str = field(default_factory=lambda: secrets.token_hex(8))

    def __post_init__(self) -> None:
        digits = self.key if isinstance(self.key, str) else ""
        if len(digits) < 32 or len(digits) % 2 or set(digits) - set("0123456789abcdefABCDEF"):
            raise InputError("the key of a blinding has 32 hexadecimal digits or more; Blinding() makes one")
        if not 0 < self.spread < 1 or not self.salt.isalnum():
            got = f"got {self.spread!r} and {self.salt!r}"
            raise InputError(
                f"a blinding has a spread between 0 and 1 and a salt of letters and digits, {got}"
            )

    @classmethod
    def of_file(cls, path: Path, digest: str = "", spread: float = 0.1) -> Blinding:
        """The blinding whose key and salt are in a file; digest: of the one that is expected.

        Raises InputError for a file that is lost or holds no key, or that of another blinding.
        """
        try:
            key, _, salt = path.expanduser().read_text().strip().partition(":")
        except (OSError, UnicodeDecodeError):
            raise InputError(
                f"there is no key of a blinding in {path}: look for the one that was made for this run, "
                f"without which nothing can be opened; `quarkline open --new-key {path}` makes a new one"
            ) from None
        try:
            found = cls(key, spread, salt)
        except InputError as error:
            raise InputError(f"{path} holds no key: {error}") from None
        return cls.of_digest(key, digest, f"the key in {path}") if digest else found

    @classmethod
    def of_digest(cls, key: str, digest: str, what: str = "the key") -> Blinding:
        """The blinding that a digest names. Raises InputError where the key, `what`, is that of another."""
        try:
            salt, spread, _ = digest.split(":")
            found = cls(key, float(spread), salt)
        except ValueError as error:
            raise InputError(f"{digest!r} is no digest of a blinding") from error
        if not hmac.compare_digest(found.digest, digest):
            raise InputError(f"{what} is not the one of the blinding {digest}")
        return found

    def write(self, path: Path) -> None:
        """Keep key and salt in a new file that only its owner reads. Raises InputError where there is one."""
        try:
            file = os.open(path.expanduser(), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except OSError as error:
            raise InputError(f"cannot write a key into {path}: {error.strerror}") from None
        with os.fdopen(file, "w") as stream:
            stream.write(f"{self.key}:{self.salt}\n")

    @property
    def digest(self) -> str:
        """Salt, spread, and a hash of both with the key: equal for numbers that carry the same factor."""
        head = f"{self.salt}:{self.spread!r}"
        return f"{head}:{self._hash(f'digest {head}').hex()}"

    @property
    def factor(self) -> float:
        """What all is multiplied with; other spreads have others: the ratio of two would give both away."""
        uniform = int.from_bytes(self._hash(f"factor {self.spread!r}")[:8], "big") / 2.0**64
        return 1 + self.spread * (2 * uniform - 1)

    def _hash(self, message: str) -> bytes:
        return hmac.digest(bytes.fromhex(self.key), message.encode(), sha256)
