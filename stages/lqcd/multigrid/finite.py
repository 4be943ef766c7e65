"""Matrices that must be finite: a setup asks a device at its end, so that the host waits only there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from stages.base.errors import InputError
from stages.lqcd.kernels import coarse_dslash
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.kernels.fields import on_rows

Question = tuple[list[Any], str]
"""Answers of `coarse_dslash.is_finite`, and what is to be said where one is no."""

_open_questions: ContextVar[list[Question] | None] = ContextVar("_open_questions", default=None)


def require_finite(matrices: Array, message: str) -> None:
    """Raise InputError with this message where an element is infinite or NaN.

    At the end of a block of `answered_at_end` where the host would have to wait for the answer.
    """
    answers, questions = on_rows(coarse_dslash.is_finite, matrices), _open_questions.get()
    if questions is None or all(isinstance(answer, bool) for answer in answers):
        _check((answers, message))
    else:
        questions.append((answers, message))


@contextmanager
def answered_at_end() -> Iterator[None]:
    """A block at whose end the first `require_finite` in it that failed raises, unless it did so before."""
    questions: list[Question] = []
    token = _open_questions.set(questions)
    try:
        yield
    finally:
        _open_questions.reset(token)
    for question in questions:
        _check(question)


def _check(question: Question) -> None:
    answers, message = question
    if not all(answers):
        raise InputError(message)
