"""The disconnected light-strange vector-current correlator: from parameters to a workflow.

configuration -> observables
              -> links -> loops (sloppy for all noise vectors, fine for a few) -> correlator -> average
              -> links -> deflation_space -> deflation (which loops take) -> low_modes
                                          -> spectrum
                                          -> solver_trials

With `solver: auto` a first round measures solvers on the first configuration, see
`workflows.g2_disconnected.choice`; with a target there are rounds, see `workflows.g2_disconnected.target`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from types import ModuleType

from pipeline import Node, Plan, Store
from stages.loops.correlator import bootstrap_average, disconnected_correlator, ensemble_average
from stages.loops.deflation_space import deflation, spectrum
from stages.loops.noise_allocation import loop_noise, trace_allocation
from stages.loops.solver_trials import NoiseSample, TrialSolves, solver_trials
from stages.lqcd.noise import Noise
from workflows.g2_disconnected.choice import TRIALS, candidates, chosen_solver, named
from workflows.g2_disconnected.loops import LoopNodes, basis_bytes, columns_of, device_memory, masses_of
from workflows.g2_disconnected.schema import G2Parameters, alternatives
from workflows.g2_disconnected.target import ALL, Contender, contenders, next_round, used_after
from workflows.shared import footprint
from workflows.shared.definition import Campaign, Choice, Definition, Step


class G2Nodes(LoopNodes):
    """The nodes of the workflow `g2_disconnected`."""

    def build(self) -> None:
        """Add all nodes of the campaign."""
        parameters = self.parameters
        self.observables()
        modes = self.modes(parameters, self.used())
        loops = self.estimator(parameters, modes)
        for name, changed in alternatives(parameters):
            self.estimator(changed, modes, f"{name}_")
        if parameters.exact:
            self.exact_loops()
        correlator = self.add(
            disconnected_correlator,
            *loops,
            name="correlator",
            stored=footprint.correlator_bytes(self.lattice),
        )
        self.target(loops, correlator)
        self.averages(correlator)

    def used(self) -> Node | None:
        """What solves are deflated with: all vectors of the space, or the lowest that a target left."""
        section = self.parameters.deflation
        if not section:
            return None
        self.add(spectrum, self.space(section), stored=footprint.RECORD)
        return self.add(
            deflation,
            self.links,
            self.space(section),
            device_memory=footprint.basis_bytes(self.lattice, section.vectors, section.precision),
            vectors=used_after(self.campaign.decisions),
        )

    def target(self, loops: list[Node], correlator: Node) -> None:
        """What a target is measured by; in a pilot also for the same estimator with fewer eigenvectors."""
        if not self.parameters.target:
            return
        self.allocation(loops, correlator, ALL)
        if self.campaign.decisions:
            return
        for contender in contenders(self.parameters.target):
            used = self.add(
                deflation,
                self.links,
                self.workflow.nodes["deflation_space"],
                name=f"deflation{contender.suffix}",
                vectors=contender.eigenvectors,
            )
            modes = self.modes(self.parameters, used, contender.suffix)
            self.allocation(self.estimator(self.parameters, modes, contender.prefix), correlator, contender)

    def allocation(self, loops: list[Node], correlator: Node, contender: Contender) -> None:
        """The stochastic errors of each configuration, and what they amount to beside the target."""
        target = self.parameters.target
        assert target is not None
        noise = self.add(loop_noise, *loops, name=contender.noise, stored=footprint.noise_bytes(self.lattice))
        self.add(
            trace_allocation,
            noise,
            correlator,
            name=contender.allocation,
            stored=footprint.RECORD,
            quantity=target.quantity,
            flavour=target.flavour,
            window=target.times(self.lattice),
            error=target.error,
            ratio=target.stochastic_to_gauge,
            earlier=[asdict(decision) for decision in self.campaign.decisions] if contender is ALL else [],
        )

    def averages(self, correlator: Node) -> None:
        """Ensemble averages with jackknife errors, and with bootstrap errors where asked for."""
        width, bootstrap = self.parameters.analysis.jackknife_bin, self.parameters.analysis.bootstrap
        self.add(
            ensemble_average,
            correlator,
            name="average",
            stored=footprint.average_bytes(self.lattice, len(self.ensemble.labels) // width),
            jackknife_bin=width,
        )
        if bootstrap:
            self.add(
                bootstrap_average,
                correlator,
                name="bootstrap",
                stored=footprint.average_bytes(self.lattice, bootstrap.samples),
                jackknife_bin=width,
                **bootstrap.model_dump(),
            )

    def trials(self, parameters: G2Parameters) -> None:
        """The solvers on the first noise of the first configuration, with its low modes."""
        first = {"config": self.links.over["config"][:1]}
        solves, noise, fine = parameters.solves, parameters.noise, parameters.solves.fine
        upstream, columns = [self.links], columns_of(parameters)
        if section := parameters.deflation:
            # all vectors of the space, which the campaign may have already, and may use fewer of
            upstream.append(
                self.add(
                    deflation,
                    self.links,
                    self.space(section, first),
                    name="deflation_of_trials",
                    over=first,
                    device_memory=basis_bytes(parameters, self.lattice),
                )
            )
        self.add(
            solver_trials,
            *upstream,
            name=TRIALS,
            over=first,
            memory=footprint.solving_memory(self.lattice, solves.block, columns)
            + basis_bytes(parameters, self.lattice),
            device_memory=device_memory(parameters, self.lattice, columns),
            stored=footprint.RECORD,
            candidates=candidates(parameters),
            masses=masses_of(parameters),
            solves=TrialSolves(
                solves.sloppy.tolerance,
                fine.tolerance if fine else None,
                [count * noise.probes for count in (noise.vectors, fine.vectors if fine else 0)],
                **solves.model_dump(include={"precision", "max_iterations", "block"}),
            ),
            noise=Noise(noise.seed, noise.kind, noise.dilution.options()),
            sample=NoiseSample(noise.chunk, noise.probe_chunk, parameters.estimator.low_modes),
        )


class G2Workflow(Definition[G2Parameters]):
    """The disconnected vector-current correlator, light, strange and their difference."""

    name = "g2_disconnected"
    title = "Disconnected vector current: light, strange, light minus strange"
    report = "workflows.g2_disconnected.report"
    results = (
        "observables",
        TRIALS,
        "spectrum",
        "low_modes",
        "correlator",
        "average",
        "bootstrap",
        "exact_light",
        "exact_strange",
        ALL.noise,
        ALL.allocation,
    )
    schema = G2Parameters
    nodes = G2Nodes

    def choice(self, parameters: G2Parameters, plan: Plan, store: Store) -> Choice[G2Parameters]:
        """The cheapest solver for all right-hand sides planned, eigenvectors included."""
        solver, tried = chosen_solver(plan, store)
        return Choice(solver, tried, named(parameters, solver))

    def follow(self, campaign: Campaign[G2Parameters]) -> Callable[[Plan, Store], Step] | None:
        """The next round towards a target."""
        return partial(next_round, campaign, self.project) if campaign.parameters.target else None

    def status(self, store: Store) -> list[str]:
        """Predicted against achieved errors of the rounds towards a target."""
        from workflows.g2_disconnected.target_report import target_lines

        return target_lines(store, self.name)

    def rehearse(self, campaign: Campaign[G2Parameters], xp: ModuleType) -> Iterator[tuple[int, int]]:
        """Links, modes, solves and contractions in every block width."""
        from workflows.g2_disconnected.rehearsal import rehearse

        return rehearse(campaign.parameters, campaign.lattice, xp)


WORKFLOW = G2Workflow()
