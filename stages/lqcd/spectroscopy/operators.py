"""Quark bilinears sum_n c_n psibar G_n D_n psi: Dirac matrices by name, D covariant displacements by word."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stages.base.errors import InputError
from stages.lqcd.dirac.displacement import AXES, steps_of
from stages.lqcd.kernels.gamma import SPINS
from stages.lqcd.spectroscopy.gammas import turned_matrix, vertices
from stages.lqcd.spectroscopy.little_group import Algebra, Rotation

TERM = re.compile(r"([+-]?)\s*(\d*\.?\d+)?\s*([A-Z]\w*)\s*(?:\[([^]]*)\])?\s*")


class Term(NamedTuple):
    """c psibar G D psi."""

    coefficient: complex
    gamma: str
    """One of `stages.lqcd.spectroscopy.gammas.NAMES`."""
    displacement: str = ""
    """A word of `stages.lqcd.dirac.displacement`."""


@dataclass(frozen=True)
class MesonOperator:
    """A sum of terms. Raises InputError for unknown Dirac matrices and displacements, and for no terms."""

    terms: tuple[Term, ...]

    def __post_init__(self) -> None:
        if not self.terms:
            raise InputError("a meson operator has at least one term, such as 'Gamma5'")
        for term in self.terms:
            vertices(term.gamma)
            steps_of(term.displacement)

    @classmethod
    def parse(cls, text: str) -> MesonOperator:
        """Operator from ``Gamma5``, or ``0.5 Identity[+x] - 0.5 Identity[-x]``. Raises InputError."""
        terms: list[Term] = []
        end = 0
        while match := TERM.match(text.strip(), end):
            sign, number, gamma, word = match.groups()
            if terms and not sign:
                break
            coefficient = float(number or 1) * (-1 if sign == "-" else 1)
            terms.append(Term(coefficient, gamma, word or ""))
            end = match.end()
        if not terms or end < len(text.strip()):
            raise InputError(
                "a meson operator is a sum of Dirac matrices with displacements, such as 'Gamma5' or "
                f"'0.5 Identity[+x] - 0.5 Identity[-x]', got {text!r}"
            )
        return cls(tuple(terms))

    @property
    def text(self) -> str:
        """Text that `parse` reads; coefficients are real."""
        parts = []
        for factor, gamma, word in self.terms:
            sign = "- " if factor.real < 0 else "+ "
            size = "" if abs(factor) == 1 else f"{abs(factor):.16g} "
            parts.append(f"{sign}{size}{gamma}{f'[{word}]' if word else ''}")
        return " ".join(parts).removeprefix("+ ")


def _around(gamma: str) -> str:
    return " + ".join(f"{gamma}[{sign}{axis}]" for axis in AXES for sign in "+-")


BASES: dict[str, tuple[tuple[str, ...], ...]] = {
    "pion": (("Gamma5", _around("Gamma5")),),
    "rho": tuple((f"Gamma{axis.upper()}", f"0.5 Identity[+{axis}] - 0.5 Identity[-{axis}]") for axis in AXES),
}
"""Bases of correlation matrices: rows, whose levels are alike at rest, of operators as text; at a momentum,
`stages.lqcd.spectroscopy.little_group` says which rows are averaged. Those of a row
have the same sign under reflection of time: a level that runs backwards around the lattice adds to all
elements of the matrix as the one that runs forwards does, and the same vectors belong to both."""


def words_of(operators: Sequence[MesonOperator]) -> tuple[str, ...]:
    """The displacements that operators have, each once; none, the empty word, always and first."""
    return tuple(dict.fromkeys(["", *(term.displacement for each in operators for term in each.terms)]))


def operator_vertices(
    operators: Sequence[MesonOperator], words: Sequence[str]
) -> tuple[NDArray[np.complex128], NDArray[np.complex128]]:
    """Vertices of the sink, sum c gamma5 G, and of the source, sum c^* Gbar gamma5.

    ``[operator, word, 4, 4]`` each.
    """
    shape = (len(operators), len(words), SPINS, SPINS)
    sinks, sources = np.zeros(shape, complex), np.zeros(shape, complex)
    for number, operator in enumerate(operators):
        for coefficient, gamma, word in operator.terms:
            sink, source = vertices(gamma)
            sinks[number, words.index(word)] += coefficient * sink
            sources[number, words.index(word)] += np.conj(coefficient) * source
    return sinks, sources


def local_vertices(text: str) -> tuple[NDArray[np.complex128], NDArray[np.complex128]]:
    """Vertices of sink and source of an operator without displacements, 4 x 4. Raises InputError."""
    if text.isidentifier():
        return vertices(text)
    operator = MesonOperator.parse(text)
    if words_of([operator]) != ("",):
        raise InputError(f"{text} is displaced: its correlators are those of a correlation matrix")
    ((sink,),), ((source,),) = operator_vertices([operator], [""])
    return sink, source


def _turned(text: str, rotation: Rotation) -> dict[tuple[str, str], complex]:
    """Coefficients of a rotated operator by Dirac matrix and displacement."""
    terms: dict[tuple[str, str], complex] = {}
    for factor, gamma, word in MesonOperator.parse(text).terms:
        sign, image = turned_matrix(gamma, rotation)
        steps = ((rotation[mu][0], step * rotation[mu][1]) for mu, step in steps_of(word))
        path = "".join(("+" if step > 0 else "-") + AXES[mu] for mu, step in steps)
        terms[image, path] = terms.get((image, path), 0) + sign * factor
    return {term: factor for term, factor in terms.items() if factor}


def _combined(factors: Sequence[int], texts: Sequence[str]) -> str:
    parsed = [MesonOperator.parse(text) for text in texts]
    terms = [
        Term(factor * each.coefficient, each.gamma, each.displacement)
        for factor, operator in zip(factors, parsed, strict=True)
        for each in operator.terms
    ]
    return MesonOperator(tuple(terms)).text


BILINEARS = Algebra(_turned, _combined, lambda text: None)
"""Rules of these operators for `stages.lqcd.spectroscopy.little_group`."""
