"""Quark bilinears sum_n c_n psibar G_n D_n psi: Dirac matrices by name, D covariant displacements by word."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stages.errors import InputError
from stages.lqcd.dirac.displacement import AXES, steps_of
from stages.lqcd.kernels.gamma import SPINS
from stages.lqcd.spectroscopy.mesons import vertices

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


def _around(gamma: str) -> str:
    return " + ".join(f"{gamma}[{sign}{axis}]" for axis in AXES for sign in "+-")


BASES: dict[str, tuple[tuple[str, ...], ...]] = {
    "pion": (("Gamma5", _around("Gamma5")),),
    "rho": tuple((f"Gamma{axis.upper()}", f"0.5 Identity[+{axis}] - 0.5 Identity[-{axis}]") for axis in AXES),
}
"""Bases of correlation matrices: rows, whose levels are alike at rest, of operators as text. Those of a row
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
