"""The disconnected light-strange vector-current correlator: from parameters to a workflow.

configuration -> observables
              -> operator -> loops (sloppy for all noise vectors, fine for a few) -> correlator -> average
              -> operator -> deflation_space -> deflation (which loops take) -> low_modes
                                             -> spectrum
                                             -> solver_trials

With `solver: auto` a first round measures solvers on the first configuration, see
`workflows.shared.choice`; with a target there are rounds, see `workflows.g2_disconnected.target`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from pipeline import Node, Place, Plan, Store
from stages.ensemble.staggered_operator import ACTIONS
from stages.loops.correlator import bootstrap_average, disconnected_correlator, ensemble_average
from stages.loops.current_loops import Masses
from stages.loops.deflation_space import deflation
from stages.loops.noise_allocation import ErrorTarget, loop_noise, trace_allocation
from stages.loops.rehearsal import loop_steps
from stages.loops.solver_trials import NoiseSample, TrialSolves, solver_trials
from stages.lqcd.analysis.disconnected import NOT_INCLUDED
from stages.lqcd.lattice.geometry import EVEN, ODD
from stages.lqcd.noise import Dilution, Noise
from stages.lqcd.solvers.named import POSITIVE
from workflows.g2_disconnected.loops import LoopNodes
from workflows.g2_disconnected.schema import G2Parameters, alternatives, low_modes_wanted
from workflows.g2_disconnected.target import ALL, Contender, contenders, next_round, used_after
from workflows.g2_disconnected.target_schema import TargetSection
from workflows.shared.choice import names_of
from workflows.shared.definition import Step
from workflows.shared.deflation_section import DeflationSection, deflation_economies
from workflows.shared.solver_precision import precisions_of
from workflows.shared.variants import after, divisors, each, less
from workflows.shared.variants import changed as with_value


class G2Workflow(LoopNodes):
    """The disconnected vector-current correlator, light, strange and their difference."""

    name = "g2_disconnected"
    title = "Disconnected vector current: light, strange, light minus strange"
    report = "workflows.g2_disconnected.report"
    rehearsals = (loop_steps,)
    results = (
        "observables",
        "solver_trials",
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

    def build(self) -> None:
        """Add all nodes of the campaign."""
        parameters = self.parameters
        self.observables()
        used = self.deflation(parameters.deflation, used_after(self.project.decisions))
        modes = self.modes(parameters, used)
        loops = self.estimator(parameters, modes)
        for name, changed in alternatives(parameters):
            self.estimator(changed, modes, f"{name}_")
        if parameters.exact:
            self.exact_loops()
        correlator = self.workflow.add(disconnected_correlator, *loops, place=Place("correlator"))
        self.target(loops, correlator)
        self.averages(correlator)

    def target(self, loops: list[Node], correlator: Node) -> None:
        """Add the nodes that measure a target; in a pilot also the same estimator with fewer eigenvectors."""
        target, section = self.parameters.target, self.parameters.deflation
        if not target:
            return
        self.allocation(target, loops, correlator, ALL)
        if self.project.decisions or not section:
            return
        for contender in contenders(target):
            used = self.workflow.add(
                deflation,
                self.operator,
                self.space(section),
                place=Place(f"deflation{contender.suffix}"),
                vectors=contender.eigenvectors,
            )
            modes = self.modes(self.parameters, used, contender.suffix)
            fewer = self.estimator(self.parameters, modes, contender.prefix)
            self.allocation(target, fewer, correlator, contender)

    def allocation(
        self, target: TargetSection, loops: list[Node], correlator: Node, contender: Contender
    ) -> None:
        """The stochastic errors of each configuration, and what they amount to beside the target."""
        self.workflow.add(
            trace_allocation,
            self.workflow.add(loop_noise, *loops, place=Place(contender.noise)),
            correlator,
            place=Place(contender.allocation),
            target=ErrorTarget(
                target.quantity,
                target.flavour,
                target.times(self.lattice),
                target.error,
                target.stochastic_to_gauge,
            ),
            earlier=[asdict(decision) for decision in self.project.decisions],
        )

    def averages(self, correlator: Node) -> None:
        """Ensemble averages with jackknife errors, and with bootstrap errors where asked for."""
        width, bootstrap = self.parameters.analysis.jackknife_bin, self.parameters.analysis.bootstrap
        self.workflow.add(ensemble_average, correlator, place=Place("average"), jackknife_bin=width)
        if bootstrap:
            self.workflow.add(
                bootstrap_average,
                correlator,
                place=Place("bootstrap"),
                jackknife_bin=width,
                **bootstrap.model_dump(),
            )

    def trials(self, parameters: G2Parameters) -> None:
        """The solvers on the first noise of one configuration, with its low modes."""
        first = {"config": (self.project.trial_configuration,)}
        solves, noise, fine = parameters.solves, parameters.noise, parameters.solves.fine
        self.workflow.add(
            solver_trials,
            self.operator,
            *self.deflation_of_trials(parameters.deflation),
            place=Place("solver_trials", first),
            candidates=names_of(solves, tuple(POSITIVE), self.chunk_columns, deflated_solves(parameters)),
            masses=Masses(**parameters.masses.model_dump()),
            solves=TrialSolves(
                solves.sloppy.tolerance,
                fine.tolerance if fine else None,
                [count * noise.probes for count in (noise.vectors, fine.vectors if fine else 0)],
                solves.max_iterations,
            ),
            noise=Noise(noise.seed, noise.kind, noise.dilution.options()),
            sample=NoiseSample(noise.chunk, noise.probe_chunk, parameters.estimator.low_modes),
        )

    @property
    def chunk_columns(self) -> int:
        """Right-hand sides of a chunk of noise, on the parity that has fewer."""
        noise = self.parameters.noise
        dilution = Dilution.parse(noise.dilution.options())
        subsets = min(len(dilution.partition(self.lattice, parity).subsets) for parity in (EVEN, ODD))
        return noise.chunk * noise.probe_chunk * subsets

    def physics(self) -> dict[str, Any]:
        """Action, masses, current and its sign, noise, solves, and the factors that are not included."""
        parameters, solves = self.parameters, self.parameters.solves
        links, masses, noise = parameters.links, parameters.masses, parameters.noise
        options = "".join(f", {key} = {getattr(links, key)}" for key in ACTIONS[links.action].options)
        fine = solves.fine
        accuracy = f"residuals at most {solves.sloppy.tolerance:g}"
        if fine:
            accuracy += (
                f", and {fine.tolerance:g} for the first {fine.vectors} noise vectors, which correct it"
            )
        modes = parameters.deflation
        return {
            "action": f"{links.action} staggered quarks{options}, M = 2 m + D as MILC defines it",
            "masses": f"light {masses.light:g}, strange {masses.strange:g}: m of M = 2 m + D",
            "boundary": f"{links.boundary} in time, periodic in space",
            "operator": f"J_mu, the one-link vector current on {parameters.current.links} links; flavours "
            "light, strange, light - strange",
            "definition": "C(t) = (1/3) sum_i (1/T) sum_t0 J_i(t0 + t) J_i(t0), i = x, y, z, mean over "
            "pairs of different noise vectors; J_mu(t) = - sum_x Im tr {eta_mu U_mu(x) "
            "[D (4 m^2 - D^2)^-1](x + mu, x)} over the slice t, tr over colours",
            "sign": "loops J have MILC's sign and normalisation; C(t) is their product",
            "not_included": NOT_INCLUDED,
            "noise": noise.model_dump(mode="json", exclude={"chunk", "probe_chunk"}),
            "low_modes": f"{modes.vectors} eigenvectors" if modes else "none",
            "solver": f"{solves.solver}, {solves.precision}, {accuracy}",
        }

    def variants(self) -> Iterator[tuple[str, G2Parameters]]:
        """The other solver, other blocks, half and twice the noise, with and without deflation."""
        parameters, vectors = self.parameters, self.parameters.noise.vectors
        yield from each(parameters, "solves.solver", ("block_cgrq", "batched_cg"))
        yield from each(parameters, "solves.block", (8, 16, 32))
        yield from each(parameters, "noise.vectors", (vectors // 2, 2 * vectors, 4 * vectors))
        if parameters.deflation is None:
            yield "deflation.vectors = 64", with_value(parameters, "deflation", DeflationSection(vectors=64))
        elif not parameters.estimator.low_modes:
            yield "no deflation", with_value(parameters, "deflation", None)

    def economies(self) -> Mapping[str, Sequence[Any]]:
        """Smaller blocks and chunks, the other solver, lower precision, fewer eigenvectors or none."""
        parameters = self.parameters
        noise, solves, modes = parameters.noise, parameters.solves, parameters.deflation
        smaller: dict[str, Sequence[Any]] = {
            "solves.block": less(solves.block),
            "noise.chunk": divisors(noise.chunk),
            "noise.probe_chunk": divisors(noise.probe_chunk),
            "solves.solver": after(solves.solver, ("block_cgrq", "batched_cg")),
            "solves.precision": after(solves.precision, precisions_of(solves.solver)),
        }
        return smaller | deflation_economies(modes, needed=low_modes_wanted(parameters))

    def step(self, plan: Plan, store: Store) -> Step:
        """The next round towards a target."""
        return next_round(self.project, plan, store)

    @classmethod
    def status(cls, store: Store) -> list[str]:
        """Predicted against achieved errors of the rounds towards a target."""
        from workflows.g2_disconnected.target_report import target_lines

        return target_lines(store, cls.name)


def deflated_solves(parameters: G2Parameters) -> tuple[bool, ...]:
    """Solves that trials compare: without low modes, with them, or both.

    Only with them where an estimator averages them, or a target tries numbers of them: there they are needed
    anyway.
    """
    if not parameters.deflation:
        return (False,)
    return (True,) if low_modes_wanted(parameters) or parameters.target else (False, True)


WORKFLOW = G2Workflow
