"""A target of the disconnected current: its nodes, and from one round's results to the next one's counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import median

from pipeline import Cost, Node, Place, Plan, Store, Workflow
from pipeline.declare.text import duration
from pipeline.planning.plan import Chunk
from stages.loops.deflation_space import deflation
from stages.loops.noise_allocation import TraceAllocation, loop_noise, model_of, trace_allocation
from stages.lqcd.analysis.allocation import UNLIMITED, Allocation, Counts, Limits, least_cost, next_counts
from stages.lqcd.lattice.geometry import Lattice
from workflows.catalogue import Project, Step
from workflows.g2_disconnected.loops import Upstream, add_estimator, add_low_modes
from workflows.g2_disconnected.schema import G2Disconnected, with_vectors
from workflows.g2_disconnected.target_schema import Target
from workflows.shared import footprint

NOISE, ALLOCATION = "noise", "allocation"
"""Names of a target's nodes."""


@dataclass(frozen=True)
class Decision:
    """What a round found, and what it expected of the next one; kept with the next round's results."""

    vectors: Counts
    error: float
    seconds: float
    """Of work for all loops so far."""
    seconds_per_vector: tuple[float, ...]
    """Of each piece, on one configuration."""
    next_vectors: Counts
    predicted_error: float
    predicted_seconds: float
    eigenvectors: int | None = None
    """How many of the deflation space's are used from here on; None: all."""


Remake = Callable[[G2Disconnected, tuple[Decision, ...]], Project]


def add_target(
    workflow: Workflow,
    target: Target,
    lattice: Lattice,
    loops: Sequence[Node],
    correlator: Node,
    earlier: Sequence[Decision],
    suffix: str = "",
) -> None:
    """The stochastic errors of each configuration, and what they amount to beside the target."""
    noise = workflow.add(
        loop_noise, *loops, place=Place(name=NOISE + suffix, cost=Cost(stored=footprint.noise_bytes(lattice)))
    )
    workflow.add(
        trace_allocation,
        noise,
        correlator,
        place=Place(name=ALLOCATION + suffix, cost=Cost(stored=footprint.RECORD)),
        quantity=target.quantity,
        flavour=target.flavour,
        window=target.times(lattice),
        error=target.error,
        ratio=target.stochastic_to_gauge,
        earlier=[asdict(decision) for decision in earlier],
    )


def follow(
    parameters: G2Disconnected,
    earlier: tuple[Decision, ...],
    remake: Remake,
    plan: Plan,
    store: Store,
) -> Step:
    """What a round's results lead to: the target is met, or more vectors, or it is beyond the limits.

    remake: the project with other counts and one decision more. All configurations get the same counts, by
    their mean variance: a result has a value for every configuration and noise vector.
    """
    target, chunk = parameters.target, parameters.noise.chunk
    assert target is not None
    found = allocation_of(plan, store)
    model, counts = model_of(found)
    error, asked = float(found.error[-1]), float(found.asked)
    suffix = ""
    said = f"round {len(earlier) + 1}, {_vectors(counts)}: {achieved(target.stochastic_to_gauge, found)}"
    if error <= asked:
        return Step(f"{said}: target met", met=True)
    configurations = len(_chunks(plan, NOISE))
    if not earlier and target.eigenvectors:
        suffix = _cheapest(plan, store, [_suffix(count) for count in target.eigenvectors], asked or error / 2)
        model, _ = model_of(allocation_of(plan, store, suffix))
    costs = _costs(plan, store, suffix)
    wanted = next_counts(model, costs, asked, counts, configurations, target.most_vectors, chunk)
    if wanted.counts == counts:
        limit = f"`target.most_vectors` = {target.most_vectors}"
        return Step(f"{said}: target not met within {limit}; raise it and run again", met=False)
    used = int(suffix[1:]) if suffix else used_after(earlier)
    decision = _decision(plan, store, counts, error, costs, wanted, suffix, used)
    with_modes = f" with {used} eigenvectors" if used else ""
    more = f"next {_vectors(wanted.counts)}{with_modes}, predicted error {decision.predicted_error:.2e}"
    work = duration(decision.predicted_seconds - decision.seconds)
    following = remake(with_vectors(parameters, wanted.counts), (*earlier, decision))
    return Step(f"{said}: {more} after {work} of work", met=False, project=following)


def achieved(ratio: float | None, found: TraceAllocation) -> str:
    """The error that was reached, beside the one asked for; `ratio`: of the two where gauge noise sets it."""
    error, asked, gauge = float(found.error[-1]), float(found.asked), float(found.gauge)
    if ratio is None:
        return f"error {error:.2e}, target {asked:.2e}"
    if not gauge:
        return f"error {error:.2e}, which hides the gauge noise"
    return f"{error / gauge:.2f} of the gauge noise, target {ratio:g}"


def used_after(earlier: Sequence[Decision]) -> int | None:
    """Eigenvectors in use after the decisions of `earlier` rounds; None: all."""
    return earlier[-1].eigenvectors if earlier else None


def add_contenders(
    workflow: Workflow, parameters: G2Disconnected, links: Node, correlator: Node, lattice: Lattice
) -> None:
    """In a pilot: the same estimator with fewer eigenvectors, for each number that the target names."""
    target = parameters.target
    for count in (target.eigenvectors or ()) if target else ():
        name = f"deflation{_suffix(count)}"
        used = workflow.add(
            deflation, links, workflow.nodes["deflation_space"], place=Place(name=name), vectors=count
        )
        modes = add_low_modes(workflow, parameters, used, lattice, f"low_modes{_suffix(count)}")
        upstream = Upstream(links, used, modes)
        loops = add_estimator(workflow, parameters, upstream, lattice, f"with_{count}_")
        assert target is not None
        add_target(workflow, target, lattice, loops, correlator, (), _suffix(count))


def _suffix(eigenvectors: int) -> str:
    return f"_{eigenvectors}"


def _cheapest(plan: Plan, store: Store, suffixes: Sequence[str], error: float) -> str:
    """Of a pilot's estimators, the one that reaches an error at least cost; '' is that of all vectors."""
    costs = {}
    for suffix in ("", *suffixes):
        model, counts = model_of(allocation_of(plan, store, suffix))
        free = Limits(counts, (UNLIMITED,) * len(counts), 1)
        costs[suffix] = least_cost(model, _costs(plan, store, suffix), error, free).cost
    return min(costs, key=lambda suffix: costs[suffix])


def _costs(plan: Plan, store: Store, suffix: str) -> tuple[float, ...]:
    """Seconds per vector of each piece."""
    pieces = _chunks(plan, NOISE + suffix)[0].node.inputs
    return tuple(_seconds_per_vector(plan, store, piece) for piece in pieces)


def allocation_of(plan: Plan, store: Store, suffix: str = "") -> TraceAllocation:
    """The result of a complete plan."""
    (chunk,) = _chunks(plan, ALLOCATION + suffix)
    return TraceAllocation(**store.load(chunk.node.stage.name, chunk.key))


def _decision(
    plan: Plan,
    store: Store,
    counts: Counts,
    error: float,
    costs: tuple[float, ...],
    wanted: Allocation,
    suffix: str,
    eigenvectors: int | None,
) -> Decision:
    of_noise, *others = _chunks(plan, NOISE + suffix)
    spent = sum(_seconds(store, chunk) for name in solving(of_noise.node) for chunk in _chunks(plan, name))
    now = sum(cost * count for cost, count in zip(costs, counts, strict=True))
    more = (1 + len(others)) * (wanted.cost - now)
    return Decision(counts, error, spent, costs, wanted.counts, wanted.error, spent + more, eigenvectors)


def _seconds_per_vector(plan: Plan, store: Store, piece: Node) -> float:
    """Of a piece on one configuration, all masses: chunks' median, which a first compilation cannot shift."""
    cost = 0.0
    for name in solving(piece):
        chunks = _chunks(plan, name)
        over = chunks[0].node.over
        of_chunk = median(_seconds(store, chunk) for chunk in chunks)
        cost += of_chunk * len(chunks) / (len(over["config"]) * len(over["noise"]))
    return cost


def solving(node: Node) -> list[str]:
    """The stored nodes above a node, or itself, that have results for every noise vector."""
    if "noise" in node.over and not node.stage.transient:
        return [node.name]
    return list(dict.fromkeys(name for upstream in node.inputs for name in solving(upstream)))


def _chunks(plan: Plan, name: str) -> list[Chunk]:
    return [chunk for chunk in plan.chunks if chunk.node.name == name]


def _seconds(store: Store, chunk: Chunk) -> float:
    return float(store.record(chunk.node.stage.name, chunk.key)["seconds"])


def _vectors(counts: Counts) -> str:
    """`64 noise vectors, 8 fine`."""
    sloppy, *fine = counts
    return f"{sloppy} noise vectors" + "".join(f", {count} fine" for count in fine)
