"""The error of an estimate against its number of samples: how far noise vectors have brought each node."""

from __future__ import annotations

import time
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np

from pipeline.planning.manifest import Manifest
from pipeline.reading.dashboard.facts.own import OwnFacts
from pipeline.store.store import Store
from stages.base.errors import InputError
from stages.loops.noise_allocation import quantity_text

SAMPLES = "noise"
"""The dimension whose entries are independent estimates of the same numbers, as all stages name it."""

PROBES = "probe"
"""Parts of one estimate, which are averaged."""

CONFIGURATIONS = 4
"""Coordinates of the first dimension whose samples are read, those that have most."""

MOST_VALUES = 512
"""Numbers that are kept of a sample: of more, every so many."""

MOST_NODES = 8
"""Nodes that have a curve."""


@dataclass(frozen=True)
class ErrorCurve:
    """Error of a node's results by their numbers of samples."""

    node: str
    counts: list[int]
    errors: list[float]


@dataclass
class _Node:
    """A node with samples: its chunks by their first coordinate, and what was read of them."""

    name: str
    stage: str
    output: str
    dims: Sequence[str]
    chunks: dict[Any, list[tuple[Any, str]]]
    """First sample and key of each, by configuration."""
    read: dict[str, np.ndarray] = field(default_factory=dict)
    """``[sample, value]`` by key."""

    def wanted(self, stored: Container[str]) -> Iterator[str]:
        """Keys that are stored and were not read, of the first configurations that have any."""
        for chunks in islice((c for c in self.chunks.values() if _any(c, stored)), CONFIGURATIONS):
            yield from (key for _, key in chunks if key in stored and key not in self.read)

    def curve(self) -> ErrorCurve | None:
        """Error of the mean over samples, root mean square over all values and some configurations.

        At powers of two, and at all samples; None before there are two.
        """
        held = {key: values for key, values in self.read.items() if len(values)}
        widths = {values.shape[1] for values in held.values()}
        if len(widths) > 1:
            return None
        parts = ([held[key] for _, key in chunks if key in held] for chunks in self.chunks.values())
        samples = [np.concatenate(part) for part in parts if part]
        most = max(map(len, samples), default=0)
        if most < 2:
            return None
        counts = [*(2**k for k in range(1, most.bit_length()) if 2**k < most), most]
        errors = [_error([each for each in samples if len(each) >= count], count) for count in counts]
        return ErrorCurve(self.name, counts, errors)


class Samples(OwnFacts):
    """Error curves of all nodes that are mapped over configurations and noise, and targets of workflows."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget all, for chunks were removed."""
        self._manifests: Sequence[Manifest] | None = None
        self._nodes: list[_Node] = []
        self.curves: dict[str, ErrorCurve] = {}
        self.targets: dict[str, tuple[ErrorCurve, float]] = {}
        """Errors of a target's quantity, round by round, and the one asked for, by the key of their chunk."""

    def refresh(
        self, store: Store, manifests: Sequence[Manifest], stored: Container[str], seconds: float
    ) -> None:
        """Read samples that are new."""
        if manifests is not self._manifests:
            self._manifests, self.curves = manifests, {}
            self._nodes = [node for manifest in manifests for node in _nodes(manifest)][:MOST_NODES]
        end = time.monotonic() + seconds
        for node in self._nodes:
            before = len(node.read)
            for key in node.wanted(stored):
                if time.monotonic() > end:
                    break
                node.read[key] = _samples(store, node, key)
            if len(node.read) > before and (curve := node.curve()):
                self.curves[node.name] = curve
        self.targets = {
            key: target
            for key, where in _target_chunks(manifests).items()
            if key in stored and (target := self.targets.get(key) or _target(store, *where, key))
        }


def _samples(store: Store, node: _Node, key: str) -> np.ndarray:
    try:
        array = store.load(node.stage, key)[node.output]
    except (InputError, KeyError):
        return np.empty((0, 1))
    if array.ndim != len(node.dims):
        return np.empty((0, 1))
    dims = list(node.dims)
    if PROBES in dims:
        array = array.mean(axis=dims.index(PROBES))
        dims.remove(PROBES)
    values = np.moveaxis(array, dims.index(SAMPLES), 0).reshape(array.shape[dims.index(SAMPLES)], -1)
    return values[:, :: max(1, -(-values.shape[1] // MOST_VALUES))]


def _target(store: Store, quantity: str, stage: str, key: str) -> tuple[ErrorCurve, float] | None:
    try:
        found = store.load(stage, key)
        counts = found["vectors"].reshape(len(found["error"]), -1)[:, 0]
        return ErrorCurve(quantity, counts.tolist(), found["error"].tolist()), float(found["asked"])
    except (InputError, KeyError, ValueError, TypeError):  # it is damaged, or of another stage
        return None


def _any(chunks: Sequence[tuple[Any, str]], stored: Container[str]) -> bool:
    return any(key in stored for _, key in chunks)


def _error(samples: Sequence[np.ndarray], count: int) -> float:
    return float(np.sqrt(np.mean([np.var(each[:count], axis=0, ddof=1).mean() / count for each in samples])))


def _nodes(manifest: Manifest) -> Iterator[_Node]:
    """Nodes mapped over something and over samples, with the first of their outputs that holds these."""
    for name, node in manifest.nodes.items():
        over, outputs = node.content["over"], node.content["outputs"]
        output = max(
            (o for o, dims in outputs.items() if SAMPLES in dims), key=lambda o: len(outputs[o]), default=None
        )
        if node.content["transient"] or output is None or SAMPLES not in over[1:]:
            continue
        at, chunks = over.index(SAMPLES), dict[Any, list[tuple[Any, str]]]()
        for place, key in zip(node.chunks, node.chunks.in_order(), strict=True):
            chunks.setdefault(place[0][1][0], []).append((place[at][1][0], key))
        yield _Node(name, node.stage, output, outputs[output], chunks)


def _target_chunks(manifests: Sequence[Manifest]) -> dict[str, tuple[str, str]]:
    """Quantity and stage of the chunks that compare an error with what is asked for, by key."""
    return {
        key: (quantity_text(node.content["parameters"]), node.stage)
        for manifest in manifests
        for node in manifest.nodes.values()
        if {"vectors", "error", "asked"} <= node.content["outputs"].keys()
        for key in node.chunks.in_order()
    }
