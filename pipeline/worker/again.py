"""Inputs of a chunk made once more, on the host and of nothing that a worker keeps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pipeline.declare.coordinates import At
from pipeline.declare.node import Stage
from pipeline.worker.joining import arguments_of, joined
from pipeline.worker.work import Work

Load = Callable[[Stage, str], dict[str, Any]]
"""The arrays of a stored result, by stage and key."""


class InputsAgain:
    """The arguments of one chunk's stage by name, from what is stored and from files, read again."""

    def __init__(self, load: Load, work: Work) -> None:
        self._load, self._work = load, work

    def __call__(self, name: str) -> Any:
        """The argument of that name; KeyError where the stage has none."""
        work = self._work
        for argument, sources in arguments_of(work.node.stage, work):
            if argument.name == name:
                return self._joined(sources, At(work.coordinates))
        raise KeyError(name)

    def _joined(self, sources: tuple[Work, ...], at: At) -> Any:
        pieces = [(source.coordinates, self._made(source)) for source in sources]
        return joined(sources[0].node.stage, dict(at), pieces)

    def _made(self, work: Work) -> Any:
        stage = work.node.stage
        if work.inputs is None:
            return stage.result(**self._load(stage, work.key))
        at = At(work.coordinates)
        arguments = [self._joined(sources, at) for _, sources in arguments_of(stage, work)]
        files = {name: version.check() for name, version in work.files.items()}
        where = {"at": at} if stage.takes_at else {}
        return stage.function(*arguments, **where, **work.node.parameters, **files)
