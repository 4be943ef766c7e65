"""Meson operators as text, and their matrices."""

import numpy as np
import pytest

from stages.lqcd.spectroscopy.gammas import vertices
from stages.lqcd.spectroscopy.operators import BASES, MesonOperator, Term, operator_vertices, words_of
from support.refusals import refuses


def test_text_of_operators() -> None:
    assert MesonOperator.parse("Gamma5").terms == (Term(1, "Gamma5"),)
    expected = (Term(0.5, "Identity", "+x"), Term(-2, "GammaXGamma5", "-x+y"), Term(-1, "SigmaYZ"))
    assert MesonOperator.parse(" 0.5 Identity[+x] - 2GammaXGamma5[-x+y]-SigmaYZ[]").terms == expected
    assert MesonOperator.parse("-.25 GammaT").terms == (Term(-0.25, "GammaT"),)


@pytest.mark.parametrize("text", ["", "Gamma5 GammaX", "2", "Gamma5 +", "Gamma5[+x", "gamma5"])
def test_what_is_no_operator(text: str) -> None:
    refuses("is a sum of Dirac matrices with displacements, such as 'Gamma5'", MesonOperator.parse, text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("GammaW", "a Dirac matrix is one of Identity, .* got 'GammaW'"),
        ("Gamma5[+t]", r"a displacement is a word .* got '\+t'"),
    ],
)
def test_unknown_parts_are_named(text: str, message: str) -> None:
    refuses(message, MesonOperator.parse, text)


def test_no_terms() -> None:
    refuses("at least one term", MesonOperator, ())


def test_vertices_are_linear_and_antilinear() -> None:
    operators = [
        MesonOperator((Term(2j, "GammaX", "+x"), Term(3, "Gamma5", "+x"))),
        MesonOperator.parse("Identity"),
    ]
    words = words_of(operators)
    assert words == ("", "+x")
    sinks, sources = operator_vertices(operators, words)
    (sink_x, source_x), (sink_5, source_5) = vertices("GammaX"), vertices("Gamma5")
    assert np.array_equal(sinks[0, 1], 2j * sink_x + 3 * sink_5) and not sinks[0, 0].any()
    assert np.array_equal(sources[0, 1], -2j * source_x + 3 * source_5)
    assert np.array_equal(sinks[1, 0], vertices("Identity")[0])


def test_bases_are_of_operators_that_parse() -> None:
    parsed = {
        name: [[MesonOperator.parse(text) for text in row] for row in rows] for name, rows in BASES.items()
    }
    assert parsed["pion"][0][1].terms[3] == Term(1, "Gamma5", "-y") and len(parsed["pion"][0][1].terms) == 6
    assert parsed["rho"][2][1].terms == (Term(0.5, "Identity", "+z"), Term(-0.5, "Identity", "-z"))
    for rows in parsed.values():
        assert len({len(row) for row in rows}) == 1
