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

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stages.base.errors import InputError

Array = NDArray[np.float64]


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
            found = cls(key, float(digest.split(":")[1]) if digest else spread, salt)
        except InputError as error:
            raise InputError(f"{path} holds no key: {error}") from None
        if digest and not hmac.compare_digest(found.digest, digest):
            raise InputError(f"the key in {path} is not the one of the blinding {digest}")
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

    def apply(self, values: ArrayLike) -> Blinded:
        """The values times the factor."""
        return Blinded(np.asarray(values, float) * self._factor(), self.digest)

    def remove(self, blinded: Blinded) -> Array:
        """The open values; any salt. Raises InputError where the key is not the one of their factor."""
        try:
            salt, spread, _ = blinded.digest.split(":")
            own = Blinding(self.key, float(spread), salt)
        except ValueError as error:
            raise InputError(f"{blinded.digest!r} is no digest of a blinding") from error
        if not hmac.compare_digest(own.digest, blinded.digest):
            raise InputError(f"the key is not the one of the blinding {blinded.digest}")
        return blinded.values / own._factor()

    def _factor(self) -> float:
        # other spreads have other factors: the ratio of two would give both away
        uniform = int.from_bytes(self._hash(f"factor {self.spread!r}")[:8], "big") / 2.0**64
        return 1 + self.spread * (2 * uniform - 1)

    def _hash(self, message: str) -> bytes:
        return hmac.digest(bytes.fromhex(self.key), message.encode(), sha256)


@dataclass(frozen=True, eq=False)
class Blinded:
    """Values of any shape that carry a factor: linear steps keep it, the ratio of two is an open array.

    Sums with open numbers, and products of two blinded ones, raise InputError.
    """

    values: Array
    digest: str
    __array_ufunc__ = None

    def __add__(self, other: object) -> Blinded:
        return Blinded(self.values + self._alike(other, "added to"), self.digest)

    def __sub__(self, other: object) -> Blinded:
        return Blinded(self.values - self._alike(other, "subtracted from"), self.digest)

    def __mul__(self, number: object) -> Blinded:
        if isinstance(number, Blinded):
            raise InputError("a product of two blinded values has the factor twice: remove it first")
        return Blinded(self.values * np.asarray(number, float), self.digest)

    def __truediv__(self, other: object) -> Array | Blinded:
        if isinstance(other, Blinded):
            return self.values / self._alike(other, "divided by")
        return self * (1 / np.asarray(other, float))

    __radd__, __rsub__, __rmul__ = __add__, __sub__, __mul__

    def __array__(self, *_: object, **__: object) -> Array:
        raise InputError("these values are blinded: take .values with the factor in it, or remove it first")

    def _alike(self, other: object, what: str) -> Array:
        if isinstance(other, Blinded) and other.digest == self.digest:
            return other.values
        kind = "values of another blinding" if isinstance(other, Blinded) else "open numbers"
        raise InputError(f"{kind} cannot be {what} blinded ones: remove the blinding first")
