"""Blinding: one secret factor on all numbers that are linear in the correlator.

It protects from seeing a result before the analysis is fixed, not from computing it: who has open data has it.
"""

from __future__ import annotations

import hmac
import secrets
from dataclasses import dataclass, field
from hashlib import sha256

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stages.base.errors import InputError

KEY_BYTES = 16

Array = NDArray[np.float64]


def new_key() -> str:
    """A random key of 128 bits, 32 hexadecimal digits. Keep it away from the results."""
    return secrets.token_hex(KEY_BYTES)


@dataclass(frozen=True)
class Blinding:
    """A factor uniform in 1 - spread ... 1 + spread, from a key; `digest` names it without giving it away.

    key: at least 128 bits in hexadecimal (`new_key`); never printed. salt: hexadecimal, random by default;
    the one of a digest makes the same blinding again. Raises InputError for a short key or a spread outside
    of 0 ... 1.
    """

    key: str = field(repr=False)
    spread: float = 0.1
    salt: str = field(default_factory=lambda: secrets.token_hex(8))

    def __post_init__(self) -> None:
        try:
            long_enough = len(bytes.fromhex(self.key)) >= KEY_BYTES
        except (TypeError, ValueError):
            long_enough = False
        if not long_enough:
            raise InputError(
                "the key of a blinding has at least 32 hexadecimal digits (128 bits), as new_key() makes it"
            )
        if not 0 < self.spread < 1:
            raise InputError(f"the spread of a blinding factor is between 0 and 1, got {self.spread!r}")

    @classmethod
    def of_digest(cls, key: str, digest: str) -> Blinding:
        """The blinding that a digest names. Raises InputError where the key is not its key."""
        salt, _, rest = digest.partition(":")
        spread = rest.partition(":")[0]
        try:
            blinding = cls(key, float(spread), salt)
        except ValueError as error:
            raise InputError(f"{digest!r} names no blinding: {error}") from None
        if not hmac.compare_digest(blinding.digest, digest):
            raise InputError(f"the key is not the one of the blinding {digest}")
        return blinding

    @property
    def digest(self) -> str:
        """Salt, spread and a hash of salt and key: equal for numbers that carry the same factor."""
        head = f"{self.salt}:{self.spread!r}"
        return f"{head}:{self._hash(f'digest {head}').hexdigest()}"

    def apply(self, values: ArrayLike) -> Blinded:
        """The values times the factor."""
        return Blinded(np.asarray(values, float) * self._factor(), self.digest)

    def remove(self, blinded: Blinded) -> Array:
        """The open values. Raises InputError where they carry another factor."""
        if blinded.digest != self.digest:
            raise InputError(f"these values carry the blinding {blinded.digest}, not {self.digest}")
        return blinded.values / self._factor()

    def _factor(self) -> float:
        uniform = int.from_bytes(self._hash("factor").digest()[:8], "big") / 2.0**64
        return 1 + self.spread * (2 * uniform - 1)

    def _hash(self, message: str) -> hmac.HMAC:
        return hmac.new(bytes.fromhex(self.key), message.encode(), sha256)


@dataclass(frozen=True, eq=False)
class Blinded:
    """Values that carry a factor, any shape. Linear steps keep it, ratios of two are open numbers.

    Sums with open numbers and products of two blinded ones raise InputError.
    """

    values: Array
    digest: str
    __array_ufunc__ = None

    def __add__(self, other: Blinded) -> Blinded:
        return Blinded(self.values + self._same(other, "added to"), self.digest)

    def __sub__(self, other: Blinded) -> Blinded:
        return Blinded(self.values - self._same(other, "subtracted from"), self.digest)

    def __radd__(self, other: object) -> Blinded:
        return self if isinstance(other, int) and other == 0 else self + other  # type: ignore[operator]

    def __rsub__(self, other: object) -> Blinded:
        return -self + other  # type: ignore[operator]

    def __neg__(self) -> Blinded:
        return Blinded(-self.values, self.digest)

    def __mul__(self, number: ArrayLike) -> Blinded:
        return Blinded(self.values * self._open(number), self.digest)

    __rmul__ = __mul__

    def __matmul__(self, weights: ArrayLike) -> Blinded:
        return Blinded(self.values @ self._open(weights), self.digest)

    def __truediv__(self, other: ArrayLike | Blinded) -> Array | Blinded:
        if isinstance(other, Blinded):
            return self.values / self._same(other, "divided by")
        return Blinded(self.values / np.asarray(other, float), self.digest)

    def __getitem__(self, index: object) -> Blinded:
        return Blinded(self.values[index], self.digest)  # type: ignore[index]

    def __array__(self, *_: object, **__: object) -> Array:
        raise InputError("these values are blinded: take .values with the factor in it, or remove it first")

    def _same(self, other: object, what: str) -> Array:
        if isinstance(other, Blinded) and other.digest == self.digest:
            return other.values
        kind = "values of another blinding" if isinstance(other, Blinded) else "open numbers"
        raise InputError(f"{kind} cannot be {what} blinded ones: remove the blinding first")

    def _open(self, number: object) -> Array:
        if isinstance(number, Blinded):
            raise InputError("a product of two blinded values has the factor squared: remove the blinding first")
        return np.asarray(number, float)
