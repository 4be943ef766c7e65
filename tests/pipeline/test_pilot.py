"""Pilots: the first chunks of a plan, which the run finds done."""

from __future__ import annotations

from collections import Counter

import toy_stages as toys
from executions import Executions

from pipeline import Place, Plan, Store, Workflow, plan, run
from pipeline.planning.plan import pilot


def workflow() -> Workflow:
    """Fields of three configurations, loops of four noise vectors on a transient setup, and their means."""
    w, field = toys.fields("abc")
    setup = w.add(toys.setup, field)
    loops = w.add(toys.with_setup, setup, place=Place(over={"noise": range(4)}))
    w.add(toys.config_mean, loops)
    return w


def chosen(plan: Plan) -> list[tuple[str, str]]:
    """Node and coordinates of what is missing."""
    return [(c.node.name, "".join(str(v[0]) for v in c.coordinates.values())) for c in plan.missing]


def computed(executed: Executions) -> Counter[str]:
    """Executions since the last call, without setups: each worker makes its own."""
    return Counter({stage: number for stage, number in executed.new().items() if stage != "setup"})


def test_a_pilot_is_the_first_chunk_of_each_node_with_what_it_reads(store: Store) -> None:
    whole = plan(workflow(), store)
    assert chosen(pilot(whole, (), 1)) == [("field", "a"), ("with_setup", "a0")]
    expected = [("field", "a"), ("field", "b"), ("with_setup", "a0"), ("with_setup", "a1")]
    assert chosen(pilot(whole, (), 2)) == expected
    assert pilot(whole, (), 1).everything == whole.everything


def test_of_known_stages_only_inputs_are_computed(store: Store) -> None:
    whole = plan(workflow(), store)
    expected = [("field", "a"), *(("with_setup", f"a{n}") for n in range(3))]
    assert chosen(pilot(whole, {"field"}, 3)) == expected
    assert not pilot(whole, {"field", "with_setup"}, 3).missing


def test_what_reduces_is_in_a_pilot_once_only_it_is_missing(store, cluster, executed):
    first = pilot(plan(workflow(), store), (), 4)
    outcome = run(first, store, cluster=cluster)
    assert outcome.exit_status == 0
    assert computed(executed) == Counter(field=3, with_setup=4)
    left = plan(workflow(), store)
    assert len(left.missing) == 8 + 3
    assert chosen(pilot(left, {"with_setup", "field"}, 1)) == [("config_mean", "a")]
    assert run(left, store, cluster=cluster).exit_status == 0
    assert computed(executed) == Counter(with_setup=8, config_mean=3)
