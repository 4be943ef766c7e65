"""Channels of mesons: which operators are related by the rotations and reflections that keep a momentum.

At rest in a cube a channel is the mean over a family of operators, such as GammaX, GammaY, GammaZ. At a
momentum p only its little group is left, and a family splits. A vector (x, y, z), polar or axial, splits by
its direction: one channel is longitudinal, along p. The two transverse directions are one channel where the
group turns one into the other, as at (p, 0, 0) (C4v) and (p, p, p) (C3v), and two channels elsewhere, as at
(p, p, 0) (C2v): the normal of a mirror, if there is one, and the direction orthogonal to it and to p.
Operators of different staggered tastes do not mix. Those that the group permutes are one channel:
longitudinal, transverse or oblique by the direction of spin or taste. Rows of other families are not averaged
at p != 0.

The group is that of the box: where extents differ, directions are not equivalent, also at rest. Reflections
keep a component of pi, which therefore mixes no directions: at (pi, p, 0) longitudinal is along y.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import permutations, product
from math import gcd, lcm
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stages.base.errors import InputError

Direction = tuple[int, int, int]
Rotation = tuple[tuple[int, int], ...]
"""Image of x, y and z: an axis and a sign each. Reflections are among them."""
Extents = tuple[int, ...]
"""Of the lattice, x y z first."""
Operators = tuple[str, ...]
Families = Mapping[str, Sequence[Sequence[str]]]
"""Rows of operators by name. At rest their correlators, or correlation matrices, are averaged."""

LONGITUDINAL, TRANSVERSE, OBLIQUE = "longitudinal", "transverse", "oblique"
AXES = "xyz"


class Row(NamedTuple):
    """Operators, one or those of a correlation matrix, and the weight of their correlators in a channel."""

    operators: Operators
    weight: float


Channels = dict[str, tuple[tuple[Row, ...], ...]]
"""Rows of each channel at each momentum; no rows where the channel does not exist."""


class Algebra(NamedTuple):
    """The rules of operators as text: rotation, sum, and taste."""

    turned: Callable[[str, Rotation], Mapping[Any, complex]]
    """Terms of the rotated operator with their coefficients."""
    combined: Callable[[Sequence[int], Sequence[str]], str]
    """The sum of operators times factors."""
    taste: Callable[[str], object]
    """Quantum number that is the same for operators that mix."""


def channels_at(
    families: Families, momenta: Sequence[Sequence[int]], extents: Extents, algebra: Algebra
) -> Channels:
    """All channels of families at momenta n, p = 2 pi n / L, named as 'rho' or 'rho, longitudinal'."""
    channels: Channels = {}
    for name, rows in families.items():
        given = tuple(map(tuple, rows))
        each = [_channels(name, given, (x, y, z), tuple(extents[:3]), algebra) for x, y, z in momenta]
        for label in dict.fromkeys(label for found in each for label in found):
            channels[label] = tuple(found.get(label, ()) for found in each)
    return channels


def undivided(channels: Channels, families: Families, momenta: Sequence[Sequence[int]]) -> bool:
    """True of mesons at rest in a box whose directions are equivalent for them: each family is a channel."""
    return not any(map(any, momenta)) and list(channels) == list(families)


def operators_in(channels: Channels) -> tuple[str, ...]:
    """All operators of channels, each once."""
    rows = (row for by_momentum in channels.values() for rows in by_momentum for row in rows)
    return tuple(dict.fromkeys(text for row in rows for text in row.operators))


def of_family(name: str, labels: Sequence[str]) -> list[str]:
    """Labels of channels that are a family's: 'rho' and 'rho, longitudinal', not 'rho, T_ti'."""
    words = "|".join((LONGITUDINAL, TRANSVERSE, OBLIQUE, "row ", f"[{AXES}]+$"))
    return [each for each in labels if re.match(f"{re.escape(name)}(, ({words})|$)", each)]


def check_at_rest(rows: object, momenta: Sequence[Sequence[int]]) -> None:
    """Raise InputError for a momentum != 0 with names of averages at rest; `Channels` are right at any."""
    moving = [list(momentum) for momentum in momenta if any(momentum)]
    if moving and not isinstance(rows, Mapping):
        raise InputError(
            f"{rows} are channels of mesons at rest, and at the momentum {moving[0]} their means mix "
            f"irreducible representations of its little group: take channels from {__name__}.channels_at"
        )


@cache
def _channels(
    name: str, given: tuple[Operators, ...], momentum: Direction, extents: Extents, algebra: Algebra
) -> Mapping[str, tuple[Row, ...]]:
    """Channels of a family at one momentum; a plan asks for them dozens of times."""
    if len(given) == 1:
        return {name: (Row(given[0], 1.0),)}
    if not any(momentum):
        return _at_rest(name, given, extents, algebra)
    kinds = {algebra.taste(text) for row in given for text in row}
    if len(kinds) == 1:
        vector = _vector(given, algebra)
        if vector is None:
            return {f"{name}, row {number}": (Row(row, 1.0),) for number, row in enumerate(given, 1)}
        found = {}
        for word, directions in polarisations(momentum, extents).items():
            found[f"{name}, {word}"] = tuple(
                Row(_along(direction, vector, algebra), 1 / (len(directions) * sum(n * n for n in direction)))
                for direction in directions
            )
        return found
    orbits = _orbits(given, little_group(momentum, extents), algebra)
    words = _words(momentum, extents, [[given.index(row) for row in orbit] for orbit in orbits])
    return {
        f"{name}{word}": tuple(Row(row, 1 / len(orbit)) for row in orbit)
        for word, orbit in zip(words, orbits, strict=True)
    }


def _at_rest(
    name: str, rows: Sequence[Operators], extents: Extents, algebra: Algebra
) -> dict[str, tuple[Row, ...]]:
    """The mean over a family, or several where a cube relates rows that a box does not."""
    orbits = _orbits(rows, rotations(extents), algebra)
    if len(orbits) == len(_orbits(rows, rotations((1, 1, 1)), algebra)):
        return {name: tuple(Row(row, 1 / len(rows)) for row in rows)}
    axes = {row: [k for k in range(3) if _turns_into(row, row, _quarter_turn(k), algebra)] for row in rows}
    if any(len(each) != 1 for each in axes.values()):
        return {f"{name}, row {number}": (Row(row, 1.0),) for number, row in enumerate(rows, 1)}
    return {
        f"{name}, {''.join(sorted(AXES[axes[row][0]] for row in orbit))}": tuple(
            Row(row, 1 / len(orbit)) for row in orbit
        )
        for orbit in orbits
    }


@cache
def rotations(extents: Extents) -> tuple[Rotation, ...]:
    """Rotations and reflections of a box onto itself, 48 of a cube."""
    return tuple(
        tuple(zip(order, signs, strict=True))
        for order in permutations(range(3))
        if all(extents[axis] == extents[image] for axis, image in enumerate(order))
        for signs in product((1, -1), repeat=3)
    )


@cache
def little_group(momentum: Direction, extents: Extents) -> tuple[Rotation, ...]:
    """Rotations and reflections of a box that keep a momentum, for which n and n + L are the same."""

    def keeps(rotation: Rotation) -> bool:
        image = rotated(momentum, rotation)
        return all((n - m) % extent == 0 for n, m, extent in zip(momentum, image, extents, strict=True))

    return tuple(filter(keeps, rotations(extents)))


def rotated(direction: Sequence[int], rotation: Rotation) -> tuple[int, ...]:
    """A direction's image."""
    image = [0, 0, 0]
    for number, (axis, sign) in zip(direction, rotation, strict=True):
        image[axis] += sign * number
    return tuple(image)


def polarisations(momentum: Direction, extents: Extents) -> dict[str, tuple[Direction, ...]]:
    """Directions of a vector by the names of their channels; orthogonal, of whole numbers, not normalised."""
    group = little_group(momentum, extents)
    common = lcm(*extents)
    # a component of pi, which is also -pi, has no direction beside others
    inner = tuple(0 if 2 * abs(n) == extent else n for n, extent in zip(momentum, extents, strict=True))
    moving = inner if any(inner) else momentum
    along = _primitive(tuple(n * common // extent for n, extent in zip(moving, extents, strict=True)))
    group = tuple(each for each in group if rotated(along, each) == along)
    mirrors = {_normal(each) for each in group if _kind(each) == (-1, 1)}
    plainest = sorted(mirrors, key=lambda n: (sum(map(bool, n)), [-abs(k) for k in n], n))
    first = plainest[0] if plainest else _primitive(_cross(along, (0, 0, 1)))
    pair = (first, _primitive(_cross(along, first)))
    if any(_kind(each) in ((1, 0), (1, 1)) for each in group):  # of order 3 or 4
        return {LONGITUDINAL: (along,), TRANSVERSE: pair}
    words = [_shape(each) for each in pair]
    if words[0] == words[1]:
        words = [_text(each) for each in pair]
    both = {f"{TRANSVERSE} {word}": (each,) for word, each in zip(words, pair, strict=True)}
    return {LONGITUDINAL: (along,), **both}


def _vector(rows: Sequence[Operators], algebra: Algebra) -> list[tuple[int, Operators]] | None:
    """The rows of x, y and z, and the signs with which they are a vector under rotations, if they are one."""
    turn = [_quarter_turn(axis) for axis in range(3)]
    still = [[k for k, row in enumerate(rows) if _turns_into(row, row, each, algebra) == 1] for each in turn]
    if len(rows) != 3 or sorted(still) != [[0], [1], [2]]:
        return None
    x, y, z = (rows[k] for (k,) in still)
    to_y, to_z = _turns_into(x, y, turn[2], algebra), _turns_into(y, z, turn[0], algebra)
    if to_y * to_z * _turns_into(z, x, turn[1], algebra) != 1 or _turns_into(y, x, turn[2], algebra) != -to_y:
        return None
    return [(1, x), (to_y, y), (to_y * to_z, z)]


def _turns_into(row: Operators, other: Operators, rotation: Rotation, algebra: Algebra) -> int:
    """The sign with which a rotation carries one row into another, 0 where it does not."""
    same: Rotation = ((0, 1), (1, 1), (2, 1))
    for sign in (1, -1):
        if all(
            algebra.turned(text, rotation)
            == {term: sign * factor for term, factor in algebra.turned(image, same).items()}
            for text, image in zip(row, other, strict=True)
        ):
            return sign
    return 0


def _along(direction: Direction, vector: Sequence[tuple[int, Operators]], algebra: Algebra) -> Operators:
    """Operators of a direction; along an axis those of its row, because signs cancel in correlators."""
    parts = [(sign * n, row) for n, (sign, row) in zip(direction, vector, strict=True) if n]
    if len(parts) == 1:
        return parts[0][1]
    factors, rows = zip(*parts, strict=True)
    return tuple(algebra.combined(factors, texts) for texts in zip(*rows, strict=True))


def _orbits(rows: Sequence[Operators], group: Sequence[Rotation], algebra: Algebra) -> list[list[Operators]]:
    """Rows that a group carries into each other, up to signs."""
    orbits: list[list[Operators]] = []
    for row in rows:
        for orbit in orbits:
            if any(_turns_into(orbit[0], row, each, algebra) for each in group):
                orbit.append(row)
                break
        else:
            orbits.append([row])
    return orbits


def _words(momentum: Direction, extents: Extents, orbits: Sequence[Sequence[int]]) -> Iterator[str]:
    """Ends of the names of channels whose rows are those of the axes in `orbits`."""
    if len(orbits) == 1:
        yield ""
        return
    moving = [axis for axis in range(3) if momentum[axis]]
    kinds = []
    for orbit in orbits:
        along = [axis for axis in orbit if axis in moving]
        kinds.append(TRANSVERSE if not along else LONGITUDINAL if moving == along == [orbit[0]] else OBLIQUE)
    for kind, orbit in zip(kinds, orbits, strict=True):
        yield f", {kind}" if kinds.count(kind) == 1 else f", {kind} {''.join(AXES[axis] for axis in orbit)}"


def _quarter_turn(axis: int) -> Rotation:
    """By 90 degrees about an axis: the next one goes to the one after it."""
    one, two = (axis + 1) % 3, (axis + 2) % 3
    image = {axis: (axis, 1), one: (two, 1), two: (one, -1)}
    return tuple(image[each] for each in range(3))


def _matrix(rotation: Rotation) -> NDArray[np.int64]:
    """Rows are the images of x, y and z."""
    return np.array([rotated(unit, rotation) for unit in np.eye(3, dtype=int).tolist()])


def _kind(rotation: Rotation) -> tuple[int, int]:
    """Determinant and trace."""
    matrix = _matrix(rotation)
    return round(np.linalg.det(matrix)), int(matrix.trace())


def _normal(mirror: Rotation) -> Direction:
    """The direction that a mirror reverses."""
    moved = (np.eye(3, dtype=int) - _matrix(mirror)).tolist()
    return _primitive(next(each for each in moved if any(each)))


def _cross(a: Sequence[int], b: Sequence[int]) -> tuple[int, ...]:
    return tuple(a[(k + 1) % 3] * b[(k + 2) % 3] - a[(k + 2) % 3] * b[(k + 1) % 3] for k in range(3))


def _primitive(direction: Sequence[int]) -> Direction:
    """The shortest one of whole numbers along it, the first of which is positive."""
    common = gcd(*direction)
    sign = next(1 if n > 0 else -1 for n in direction if n)
    x, y, z = (sign * n // common for n in direction)
    return x, y, z


def _shape(direction: Direction) -> str:
    """axis, diagonal, or the direction itself."""
    sizes = sorted(map(abs, direction))
    return {(0, 0, 1): "axis", (0, 1, 1): "diagonal"}.get((sizes[0], sizes[1], sizes[2]), _text(direction))


def _text(direction: Direction) -> str:
    lone = [axis for axis in range(3) if direction[axis]]
    return AXES[lone[0]] if len(lone) == 1 else f"({','.join(map(str, direction))})"
