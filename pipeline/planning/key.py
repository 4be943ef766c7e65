"""Keys: the SHA-256 of the canonical JSON of everything that can alter a chunk's result."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from hashlib import sha256
from typing import Any

import numpy as np

from pipeline.declare.coordinates import Coordinates
from pipeline.declare.node import Node
from pipeline.declare.parameter import flattened
from pipeline.store.record import Facts, canonical_json
from stages.base.errors import InputError

SCHEME = 1
"""Version of the recipe below; a change of it makes every chunk a new one."""


def node_content(node: Node, backend: str) -> Facts:
    """Everything but coordinates, inputs and files that enters the keys of a node's chunks.

    Stage name, version, parameters (but those keyed without); chunk size and backend only for the stages that
    declare them to matter. Node names, paths, resources and clusters stay out.
    """
    stage, parameters = node.stage, canonical_parameters(node)
    content: dict[str, Any] = {
        "scheme": SCHEME,
        "stage": stage.name,
        "version": stage.version,
        "parameters": parameters,
    }
    if stage.keyed.chunk:
        content["chunk"] = node.chunk
    if stage.keyed.backend:
        content["backend"] = backend
    return content


def key_of(
    node_content: Facts,
    coordinates: Coordinates,
    inputs: Sequence[Sequence[str]],
    files: Mapping[str, str],
) -> str:
    """Key of one chunk, 64 hexadecimal digits.

    inputs: per input, keys of the upstream chunks in coordinate order; files: digests by parameter.
    """
    content = {**node_content, "coordinates": coordinates, "inputs": inputs, "files": files}
    return sha256(canonical_json(content)).hexdigest()


def node_keys(nodes: Iterable[Node], cluster: str) -> dict[str, str]:
    """Digests, by node, of what the keys of its chunks are made of, beside coordinates and files.

    nodes: upstream before downstream. Nodes of one name in two workflows have chunks of the same keys only if
    their digests are the same.
    """
    keys: dict[str, str] = {}
    for node in nodes:
        inputs = [[keys[source.name]] for source in node.inputs]
        sizes: Coordinates = {dim: (size,) for dim, size in node.chunk.items()}
        keys[node.name] = key_of(node_content(node, node.stage.backend(cluster)), sizes, inputs, {})
    return keys


def canonical_parameters(node: Node) -> Facts:
    """The node's parameters that can alter its results, as plain JSON values."""
    keyed, parameters = node.stage.keyed, node.stage.parameters
    content = {
        name: canonical(value, f"{node.name}.{name}")
        for name, value in flattened(parameters, node.parameters).items()
        if name not in keyed.without
    }
    unsaid = {
        each.name: canonical(each.default, each.name) for each in parameters if each.name in keyed.later
    }
    return {name: value for name, value in content.items() if name not in unsaid or value != unsaid[name]}


def canonical(value: object, where: str) -> Any:
    """A parameter's value as plain JSON; refuses what has no unambiguous text."""
    if value is None or (isinstance(value, (bool, int, str)) and not isinstance(value, Enum)):
        return value
    if isinstance(value, float):
        return _finite(value, where)
    if isinstance(value, complex):
        return {"complex": [_finite(value.real, where), _finite(value.imag, where)]}
    if isinstance(value, Enum):
        return canonical(value.value, where)
    if isinstance(value, np.generic):
        return canonical(value.item(), where)
    if isinstance(value, (list, tuple)):
        return [canonical(item, f"{where}[{k}]") for k, item in enumerate(value)]
    return _canonical_mapping(value, where)


def _canonical_mapping(value: object, where: str) -> Facts:
    """Dictionaries with string keys, dataclasses and pydantic models."""
    if is_dataclass(value) and not isinstance(value, type):
        content: Mapping[str, object] = {item.name: getattr(value, item.name) for item in fields(value)}
    elif hasattr(value, "model_dump"):
        content = value.model_dump()
    elif isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
        content = value
    else:
        raise InputError(
            f"parameter {where}: a {type(value).__name__} cannot be part of a key; "
            "use numbers, strings, lists, dictionaries or dataclasses (and files= for files)"
        )
    named = {name: canonical(item, f"{where}.{name}") for name, item in content.items()}
    return named if content is value else {"type": type(value).__name__, **named}


def _finite(value: float, where: str) -> float:
    if not math.isfinite(value):
        raise InputError(f"parameter {where} must be finite, got {value}")
    return float(value)
