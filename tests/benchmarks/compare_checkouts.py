"""Two checkouts of quarkline on one machine: the keys and the arrays of every chunk that workflows make.

    python tests/benchmarks/compare_checkouts.py BEFORE AFTER [--cluster cuda] [--files a.yaml ...]

Each tree runs the files, by default those shipped with BEFORE, in processes of its own and into stores of its
own; chunks are then matched by node and coordinates. Results of other runs can be compared again, since a
folder given by --folder keeps the stores and a second call computes only what is missing.

What follows from timings is compared in what does not: of an array whose name says seconds, shape, type and
which numbers are NaN. A choice that timings decide may differ, and a Markov chain amplifies a rounding until
the configurations are others: `--take STAGE` has AFTER use the chunks of that stage that BEFORE made, so that
all that follows can be compared; those stages themselves are then compared in their keys alone.

Exit code: 0 equal to the bit, or with --rounding to that; 1 unexpected differences; 2 a run that failed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from pipeline.planning.manifest import Manifest, NodeRecord
from pipeline.planning.manifest_files import manifests
from pipeline.store.store import Store

QUARKLINE = "import sys; from workflows.command import main; sys.exit(main(sys.argv[1:]))"
WHERE = "import pipeline, stages, workflows; print(*(m.__path__[0] for m in (pipeline, stages, workflows)))"
TIMES = "seconds"
"""Arrays with this word in their names hold timings."""


@dataclass
class Comparison:
    """Comparison of a node's chunks; `differences` are lines for people, a line each array."""

    counts: Counter[str] = field(default_factory=Counter)
    differences: dict[str, float] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)

    def fails(self, rounding: float | None) -> bool:
        """True if there are other keys, missing chunks, or arrays that differ by more than `rounding`."""
        return bool(self.counts["changed keys"] or self.missing) or not all(
            agrees(difference, rounding) for difference in self.differences.values()
        )


def agrees(difference: float, rounding: float | None) -> bool:
    return rounding is not None and difference <= rounding


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs both trees, prints a table of nodes and what differs."""
    options = parsed(arguments)
    files = options.files or sorted((options.before / "workflows").glob("*.yaml"))
    with TemporaryDirectory(prefix="quarkline-compare-") as scratch:
        folder = (options.folder or Path(scratch)).absolute()
        failed = 0
        for file in files:
            before, after = (folder / side / file.stem for side in ("before", "after"))
            run(options.before, file, before, options.cluster)
            for stage in options.take:
                take(stage, before / "store", after / "store")
            run(options.after, file, after, options.cluster)
            failed += report(file.name, before / "store", after / "store", options.take, options.rounding)
    print(f"\n{failed} nodes with unexpected differences" if failed else "\nno unexpected differences")
    return 1 if failed else 0


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("before", type=tree, metavar="BEFORE", help="source tree whose results are right")
    parser.add_argument("after", type=tree, metavar="AFTER", help="source tree that is checked")
    parser.add_argument("--cluster", default="local", help="of `quarkline run` (default local)")
    parser.add_argument("--files", type=lambda name: Path(name).absolute(), nargs="+", help="workflow files")
    parser.add_argument("--folder", type=Path, help="where the stores stay (default: nowhere)")
    parser.add_argument("--take", nargs="+", default=[], metavar="STAGE", help="chunks that AFTER takes over")
    parser.add_argument("--rounding", type=float, help="relative difference that is expected (default: none)")
    return parser.parse_args(arguments)


def tree(name: str) -> Path:
    """A checkout, from which Python really imports all three packages."""
    path = Path(name).resolve()
    done = subprocess.run(
        [sys.executable, "-c", WHERE], env=environment(path), capture_output=True, text=True, cwd="/"
    )
    folders = [str(path / package) for package in ("pipeline", "stages", "workflows")]
    if done.stdout.split() != folders:
        raise argparse.ArgumentTypeError(f"{name} is no checkout of quarkline: {done.stdout}{done.stderr}")
    return path


def environment(path: Path) -> dict[str, str]:
    others = os.environ.get("PYTHONPATH", "")
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (str(path), others)))}


def run(source: Path, file: Path, folder: Path, cluster: str) -> None:
    """`quarkline run` of one tree. Exits with 2 if it fails."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-c", QUARKLINE, "run", str(file), "--cluster", cluster, "--store", "store"]
    done = subprocess.run(command, env=environment(source), cwd=folder, capture_output=True, text=True)
    if done.returncode:
        print(f"{source} failed with {file}:\n{done.stdout}{done.stderr}", file=sys.stderr)
        raise SystemExit(2)


def take(stage: str, source: Path, target: Path) -> None:
    """Copies all chunks of a stage that the other store lacks."""
    Store(target).create()
    for key in Store(source).keys(stage) - Store(target).keys(stage):
        shutil.copytree(source / stage / key, target / stage / key)


def report(name: str, before: Path, after: Path, taken: Sequence[str], rounding: float | None) -> int:
    """Prints the comparison of one file's stores; returns how many nodes differ unexpectedly."""
    print(f"\n## {name}\n\n| node | chunks | keys equal | changed | arrays equal | differ | taken over |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    comparisons = dict(compared(Store(before), Store(after), taken))
    names = ("chunks", "equal keys", "changed keys", "equal arrays", "other arrays", "taken")
    for node, comparison in comparisons.items():
        print(f"| {node} | {' | '.join(str(comparison.counts[name]) for name in names)} |")
    for node, comparison in comparisons.items():
        for array, difference in comparison.differences.items():
            verdict = "agrees to rounding" if agrees(difference, rounding) else "DIFFERS"
            print(f"{node}: {array} {verdict}, {difference:.2g} of its largest number")
        for missing in comparison.missing:
            print(f"{node}: {missing}")
    return sum(comparison.fails(rounding) for comparison in comparisons.values())


def compared(before: Store, after: Store, taken: Sequence[str]) -> Iterator[tuple[str, Comparison]]:
    """The comparison of every node of either store, by workflow and name."""
    ours, theirs = nodes(manifests(before)), nodes(manifests(after))
    for name in dict.fromkeys((*ours, *theirs)):
        if name in ours and name in theirs:
            yield name, compared_node(before, after, ours[name], theirs[name], taken)
        else:
            yield name, Comparison(missing=[f"only {'before' if name in ours else 'after'}"])


def nodes(plans: Sequence[Manifest]) -> dict[str, NodeRecord]:
    return {f"{plan.workflow}/{name}": node for plan in plans for name, node in plan.nodes.items()}


def compared_node(
    before: Store, after: Store, ours: NodeRecord, theirs: NodeRecord, taken: Sequence[str]
) -> Comparison:
    """Keys of all chunks; arrays of those that are stored."""
    comparison, stage = Comparison(), (ours.content["stage"], theirs.content["stage"])
    for at in dict.fromkeys((*ours.chunks, *theirs.chunks)):
        label = " ".join(f"{dim}={','.join(map(str, values))}" for dim, values in at)
        comparison.counts["chunks"] += 1
        if at not in ours.chunks or at not in theirs.chunks:
            comparison.missing.append(f"chunk {label} only {'before' if at in ours.chunks else 'after'}")
            continue
        keys = ours.chunks[at], theirs.chunks[at]
        equal = keys[0] == keys[1] and stage[0] == stage[1]
        comparison.counts["equal keys" if equal else "changed keys"] += 1
        stored = before.has(stage[0], keys[0]), after.has(stage[1], keys[1])
        if stage[0] in taken:
            comparison.counts["taken"] += 1
        elif all(stored):
            compare_arrays(comparison, before, after, (stage[0], keys[0]), (stage[1], keys[1]))
        elif any(stored):
            comparison.missing.append(f"chunk {label} stored only {'before' if stored[0] else 'after'}")
    return comparison


def compare_arrays(
    comparison: Comparison, before: Store, after: Store, ours: tuple[str, str], theirs: tuple[str, str]
) -> None:
    """Digests of one chunk's arrays, and how far those are apart whose digests differ."""
    records = before.record(*ours)["arrays"], after.record(*theirs)["arrays"]
    for name in dict.fromkeys((*records[0], *records[1])):
        if name not in records[0] or name not in records[1]:
            comparison.missing.append(f"array {name} only {'before' if name in records[0] else 'after'}")
        elif records[0][name]["digest"] == records[1][name]["digest"]:
            comparison.counts["equal arrays"] += 1
        else:
            a, b = before.arrays(*ours)[name][...], after.arrays(*theirs)[name][...]
            if TIMES in name and a.dtype == b.dtype and np.array_equal(np.isnan(a), np.isnan(b)):
                comparison.counts["equal arrays"] += 1
                continue
            comparison.counts["other arrays"] += 1
            comparison.differences[name] = max(difference(a, b), comparison.differences.get(name, 0.0))


def difference(a: np.ndarray, b: np.ndarray) -> float:
    """Largest |a - b| over largest |a|; infinite for other shapes, types or places of NaN."""
    if a.shape != b.shape or a.dtype != b.dtype or not np.array_equal(np.isnan(a), np.isnan(b)):
        return np.inf
    wide = np.result_type(a.dtype, np.float64)
    largest = np.nanmax(np.abs(a), initial=0.0)
    apart = np.nanmax(np.abs(a.astype(wide) - b.astype(wide)), initial=0.0)
    return float(apart / largest) if largest else float(np.inf if apart else 0.0)


if __name__ == "__main__":
    sys.exit(main())
