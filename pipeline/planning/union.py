"""One plan of a workflow that names what two of its plans name: of other configurations, of other noise."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import product
from typing import Any

from pipeline.declare.coordinates import natural_order
from pipeline.planning.manifest import NodeRecord
from pipeline.store.record import canonical_json

_OF_CHUNKS = ("blocks", "keys", "files")


def united(ours: bytes, theirs: bytes) -> str | None:
    """The manifest that names the chunks of two manifests of one workflow; None where they do not fit.

    They fit if their nodes differ in coordinates alone, and these make a grid together. A node whose inputs
    grew, an average, is left out: that of all coordinates is computed by the next run. So is what the two
    say differently of all results, such as the number of configurations.
    """
    contents = json.loads(ours), json.loads(theirs)
    mine, yours = (
        {name: NodeRecord.of(node) for name, node in content["nodes"].items()} for content in contents
    )
    shared = [name for name in mine if name in yours]
    if any(_described(mine[name]) != _described(yours[name]) for name in shared):
        return None
    if all(at in mine[name].chunks for name in shared for at in yours[name].chunks):
        return ours.decode()
    grown = {name for name in shared if mine[name].content["blocks"] != yours[name].content["blocks"]}
    nodes: dict[str, Any] = {}
    for name in dict.fromkeys([*mine, *yours]):
        if name not in shared or _differ(mine[name], yours[name]):
            if grown.isdisjoint((mine.get(name) or yours[name]).content["inputs"]):
                return None
            grown.add(name)
        elif (whole := _whole(mine[name], yours[name])) is None:
            return None
        else:
            nodes[name] = whole
    abouts = [content.get("about", {}) for content in contents]
    about = {name: value for name, value in abouts[0].items() if abouts[1].get(name) == value}
    return canonical_json({**contents[0], "nodes": nodes, "about": about}).decode()


def _differ(one: NodeRecord, other: NodeRecord) -> bool:
    """True if a chunk of the same coordinates has another key."""
    return any(one.chunks[at] != key for at, key in other.chunks.items() if at in one.chunks)


def _described(node: NodeRecord) -> dict[str, Any]:
    return {name: value for name, value in node.content.items() if name not in _OF_CHUNKS}


def _whole(one: NodeRecord, other: NodeRecord) -> dict[str, Any] | None:
    """A node on the coordinates of both; None where chunks of its grid are in neither."""
    blocks = [
        _merged(mine, yours)
        for mine, yours in zip(one.content["blocks"], other.content["blocks"], strict=True)
    ]
    if any(along is None for along in blocks):
        return None
    keys, files = [], dict[str, dict[Any, str]]()
    for place in product(*(along or [] for along in blocks)):
        at = tuple(zip(one.content["over"], place, strict=True))
        holder = one if at in one.chunks else other
        if at not in holder.chunks:
            return None
        keys.append(holder.chunks[at])
        for name, digest in holder.files(at).items():
            files.setdefault(name, {})[place[:1]] = digest
    digests = {name: list(by_block.values()) for name, by_block in files.items()}
    return {**one.content, "blocks": blocks, "keys": "".join(keys), "files": digests}


def _merged(mine: Iterable[Iterable[Any]], yours: Iterable[Iterable[Any]]) -> list[tuple[Any, ...]] | None:
    """Blocks along a dimension, in order; None where a coordinate is in two different ones."""
    blocks = {tuple(block) for block in (*mine, *yours)}
    coordinates = [value for block in blocks for value in block]
    if len(set(coordinates)) < len(coordinates):
        return None
    return sorted(blocks, key=lambda block: natural_order(block[0]))
