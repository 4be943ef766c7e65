"""a_mu from connected and disconnected correlators: the nodes of both workflows, then the analysis.

configuration -> (nodes of g2_disconnected) -> correlator, noise      |
              -> (nodes of g2_connected) -> correlator_QUARK          | -> average -> a_mu

Correlators of configurations have the keys of those workflows, whose stores it can share. Averages are its
own: where they are blinded, no other average is made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from pipeline import Node, Place, Plan, Store, Workflow, counted, node_keys
from stages.base.errors import InputError
from stages.hvp.average import PartSource, hvp_average
from stages.hvp.contribution import HvpPart, hvp_contribution
from stages.hvp.noise import pair_noise, wall_noise
from stages.loops.current_loops import DIFFERENCE
from stages.loops.noise_allocation import loop_noise
from stages.lqcd.analysis.a_mu import joined
from stages.lqcd.analysis.common_resampling import Resampling, common_samples, configurations
from stages.lqcd.analysis.exponential_fit import ExponentialFit
from stages.lqcd.analysis.hvp_budget import HvpBudget
from stages.lqcd.analysis.stochastic_error import LEAST_VECTORS
from workflows import Definition, Project, Step
from workflows.g2_connected.build import ConnectedWorkflow
from workflows.g2_disconnected.build import G2Workflow
from workflows.g2_hvp.pilot import CHOSEN, after_pilot, tried, with_modes
from workflows.g2_hvp.schema import QUARKS, HvpParameters, PartSection
from workflows.g2_hvp.target import next_round

DISCONNECTED = "disconnected"
CHECKED = 1000
"""Bootstrap samples that a plan draws, to find those without a part's configurations."""


class Joined(Workflow):
    """A workflow to which several definitions add nodes: one that is there already is taken again."""

    def add(
        self, function: Callable[..., Any], /, *upstream: Node, place: Place | None = None, **parameters: Any
    ) -> Node:
        """The node; or that of the same keys and coordinates. Another one of its name is numbered."""
        place = place or Place()
        name = label = place.name or getattr(function, "func", function).__name__
        number = 1
        while name in self.nodes:
            number += 1
            name = f"{label}_{number}"
        node = super().add(function, *upstream, place=replace(place, name=name), **parameters)
        keys = node_keys(self.nodes.values(), "cpu")
        for other in self.nodes.values():
            if other is not node and keys[other.name] == keys[name] and other.over == node.over:
                del self.nodes[name]
                return other
        return node


class HvpWorkflow(Definition[HvpParameters]):
    """a_mu from the connected and disconnected vector correlators, with its error budget."""

    name = "g2_hvp"
    title = "a_mu: hadronic vacuum polarisation of the muon's g-2"
    report = "workflows.g2_hvp.report"
    results = ("observables", "spectrum", "average", "a_mu", "correlator", "correlator_*")
    schema = HvpParameters

    def __init__(self, project: Project[HvpParameters], workflow: Workflow) -> None:
        super().__init__(project, Joined(workflow.name, workflow.about, workflow.source))
        self.pilot = tried(project)
        if self.pilot is not None:
            self.parameters = with_modes(self.parameters, self.pilot)
            self.ensemble = replace(self.ensemble, labels=tuple(self.measured(most=1)))
        self.inputs: list[Node] = []
        self.sources: dict[str, PartSource] = {}
        """Rows of the average, `light one_link` and the like, and where each comes from."""

    def labels(self, part: PartSection) -> list[str]:
        """Configurations of a part."""
        return [label for label in self.ensemble.labels if fnmatchcase(label, part.only)]

    def measured(self, most: int | None = None) -> list[str]:
        """Configurations of any part, `most` of each."""
        parts = [each for each in (self.parameters.connected, self.parameters.disconnected) if each]
        some = {label for each in parts for label in self.labels(each)[:most]}
        return [label for label in self.ensemble.labels if label in some]

    def build(self) -> None:
        """Add all nodes; in a pilot those up to the noise of one configuration."""
        self.observables()
        for name, add in (("connected", self.connected), (DISCONNECTED, self.disconnected)):
            if section := getattr(self.parameters, name):
                labels = self.labels(section)
                if not labels and not self.project.mark:
                    raise InputError(f"`{name}.only`: no configuration has a label like {section.only!r}")
                if labels:
                    add(labels)
        if self.pilot is not None:
            _ = replace(self.project, decisions=(CHOSEN,)).workflow  # what is refused later is refused now
        elif f"light {self.parameters.analysis.current}" in self.sources:
            self.analysis()

    def connected(self, labels: Sequence[str]) -> None:
        """Nodes of g2_connected up to C(t) of configurations, and what single walls add to it."""
        parameters = self.parameters.of_connected
        own = self.of(ConnectedWorkflow, parameters, labels)
        correlators, accuracies = own.correlators(), len(own.accuracies)
        rows = [f"{quark} {current}" for quark in parameters.quarks for current in parameters.currents]
        stage = partial(
            wall_noise,
            rows=rows,
            operators=parameters.operators,
            currents=parameters.currents,
            accuracies=accuracies,
        )
        walls = [each for node in correlators for each in node.inputs[:accuracies]]
        for number, row in enumerate(rows):
            quark, current = divmod(number, len(parameters.currents))
            self.sources[row] = PartSource(
                len(self.inputs) + quark, current, len(self.inputs) + len(correlators), number
            )
        self.inputs += [*correlators, self.workflow.add(stage, *walls, place=Place("wall_noise"))]

    def disconnected(self, labels: Sequence[str]) -> None:
        """Nodes of g2_disconnected up to C(t) of configurations, and what single noise vectors add to it."""
        parameters = self.parameters.of_disconnected
        loops, correlator = self.of(G2Workflow, parameters, labels).correlators()
        fine, place = parameters.solves.fine, len(self.inputs)
        enough = min([parameters.noise.vectors, *([fine.vectors] if fine else [])]) >= LEAST_VECTORS
        self.sources[DISCONNECTED] = PartSource(place, DIFFERENCE, place + 1 if enough else None)
        self.inputs.append(correlator)
        if enough:
            errors = self.workflow.add(loop_noise, *loops, place=Place("noise"))
            self.inputs.append(self.workflow.add(pair_noise, errors, *loops, place=Place("pair_noise")))

    def of(self, definition: type[Any], parameters: Any, labels: Sequence[str]) -> Any:
        """Another workflow's definition, which adds its nodes, of some configurations, to this one."""
        project = replace(self.project, definition=definition, parameters=parameters, decisions=())
        own = definition(project, self.workflow)
        own.configuration, own.within = self.configuration, {"config": labels}
        own.within_modes = {"config": self.measured()}
        return own

    def check_samples(self, streams: str | None, resampling: Resampling) -> None:
        """Raise InputError for labels without stream and number, and a part with too few bins."""
        try:
            configurations(self.ensemble.labels, "ensemble", streams)
        except InputError as error:
            remedy = "" if streams else "; say where it is: `streams: 'l48{stream}.{number}.ildg'`"
            raise InputError(f"`analysis.streams`: {error}{remedy}") from None
        if self.project.mark:
            return  # a part of the configurations, which may be too few
        own = {part: self.inputs[source.input].over["config"] for part, source in self.sources.items()}
        try:
            zeros = {part: (np.zeros(len(each)), each) for part, each in own.items()}
            common_samples(zeros, resampling, streams)
        except InputError as error:
            raise InputError(f"`analysis.jackknife_bin` {resampling.bin}: {error}") from None

    def analysis(self) -> None:
        """The common average, and a_mu in its windows."""
        parameters, section = self.parameters, self.parameters.analysis
        blinding, bootstrap = parameters.blinding, section.bootstrap
        digest = blinding.digest if blinding else None
        drawn = (bootstrap.samples, bootstrap.seed) if bootstrap else (0, 0)
        few = (min(drawn[0], CHECKED), drawn[1])
        self.check_samples(section.streams, Resampling(section.jackknife_bin, *few))
        average = partial(
            hvp_average,
            parts=tuple(self.sources),
            sources=tuple(self.sources.values()),
            jackknife_bin=section.jackknife_bin,
            bootstrap=drawn[0],
            seed=drawn[1],
            streams=section.streams,
            blinded=digest,
            key_file=str(Path(section.blind.key).expanduser().absolute()) if section.blind else None,
        )
        averaged = self.workflow.add(average, *self.inputs, place=Place("average"))
        names, tail = list(self.parts), section.tail.of_stages if section.tail else None
        shown = list(joined(dict.fromkeys(names, 0)))
        corrections = [(each.window, each.named(name)) for name, each in section.corrections.items()]
        sources = ["statistical", "scale", *dict.fromkeys(p.z_v.name for p in self.parts.values() if p.z_v)]
        fit = section.tail.fit if section.tail else None
        bounded = [f"tail, {name}" for name in (tail.bounded if tail else ()) if name in names]
        a_mu = partial(
            hvp_contribution,
            names=names,
            parts=tuple(self.parts.values()),
            shown=shown,
            windows=section.windows,
            sums=[parameters.total(name) for name in section.windows],
            budget_rows=[*shown, *section.corrections, *sources, *bounded, "total"],
            volume=self.lattice.volume // self.lattice.time_extent,
            tail=tail,
            fit=ExponentialFit(**fit.model_dump()) if fit else None,
            bootstrap=bootstrap is not None,
            corrections=corrections,
            blinded=digest,
        )
        self.workflow.add(a_mu, averaged, place=Place("a_mu"))

    @cached_property
    def parts(self) -> dict[str, HvpPart]:
        """Parts of G(t), and the rows that they and their Z_V come from."""
        current, quarks = self.parameters.analysis.current, self.parameters.quarks
        own = [name for name in QUARKS if name in quarks]
        parts = {name: self.part(f"{name} {current}", name, current) for name in own}
        if "up" in parts:
            parts["minus_light"] = parts["light"]
        if DISCONNECTED in self.sources:
            parts[DISCONNECTED] = self.part(DISCONNECTED, "light", "one_link")
        return parts

    def part(self, row: str, quark: str, current: str) -> HvpPart:
        """A part whose current is that of a quark's connected correlator."""
        rows = list(self.sources)
        if current == "conserved":
            return HvpPart(rows.index(row))
        section, own = self.parameters.analysis.z_v[current], (f"{quark} conserved", f"{quark} {current}")
        conserved, measured = map(rows.index, own) if {*own} <= {*rows} else (None, None)
        z_v = section.stated.named(f"Z_V {current}") if section.stated else None
        return HvpPart(rows.index(row), z_v, conserved, measured, section.at)

    def physics(self) -> dict[str, Any]:
        """Quarks, currents, scale, factors that are included and those that are not, and what is open."""
        parameters, scale = self.parameters, self.parameters.scale
        section, published = parameters.analysis, parameters.ensemble.published
        masses = (f"{name} {quark.mass:g}" for name, quark in parameters.quarks.items())
        facts: dict[str, Any] = {
            "action": "hisq staggered quarks, M = 2 m + D as MILC defines it",
            "masses": f"{', '.join(masses)}: m of M = 2 m + D",
            "boundary": f"{parameters.links.boundary} in time, periodic in space",
            "current": f"{section.current}; disconnected: one_link on thin links",
            "scale": f"a = {scale.a_fm:g} fm, error {scale.error:g}"
            + (f", of {published.name}: {published.source}" if published and not section.scale else ""),
            "units": "average: lattice units, a = 1; a_mu: in 1e-10, G(t) and Z_V in lattice units, moments "
            "in GeV^(2 - k)",
            "included": {"average": "nothing", "a_mu": "charges, Z_V^2, 1/L^3"},
            "not_included": {"average": "charges, Z_V^2, 1/L^3; of loops the operator's factor 1/4"},
        }
        if (pilots := self.project.decisions) and self.pilot is None:
            facts["eigenvectors_tried"] = "; ".join(map(str, pilots))
        if blinding := parameters.blinding:
            facts["blinded"] = (
                f"average, a_mu: {blinding.digest}; open: what is over `config`, as loops and correlators"
            )
        bins = f"bins of {counted(section.jackknife_bin, 'configuration')} of one stream, incomplete ones too"
        facts["errors"] = (
            f"jackknife, one standard deviation, over {bins}; sample k is the average without bin k"
        )
        if section.bootstrap:
            samples = section.bootstrap.samples
            facts["errors"] = f"bootstrap, one standard deviation, {samples} samples of {bins}"
        return facts

    def step(self, plan: Plan, store: Store) -> Step:
        """The next round towards a target."""
        if self.pilot is not None:
            return after_pilot(self.project, self.pilot, plan, store)
        return next_round(self.project, plan, store)

    @classmethod
    def exported(cls, parameters: HvpParameters, nodes: Iterable[str]) -> list[str]:
        """All results; of a blinded run without correlators of configurations, which are open."""
        blind = parameters.analysis.blind
        return [name for name in cls.results_in(nodes) if not (blind and name.startswith("correlator"))]

    @classmethod
    def opened(cls, parameters: HvpParameters, store: Store, key: Path) -> list[HvpBudget]:
        """The budgets without the blinding's factor, corrections added. Raises InputError for another key."""
        from workflows.g2_hvp.report import opened  # with figures

        return opened(parameters, store, key)


WORKFLOW = HvpWorkflow
