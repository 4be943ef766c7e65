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
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any

from pipeline import Node, Place, Plan, Store
from stages.ensemble.staggered_operator import ACTIONS
from stages.loops.correlator import bootstrap_average, disconnected_correlator, ensemble_average
from stages.loops.current_loops import current_loops, exact_loops, flavour_loops, split_even_loops
from stages.loops.deflation_space import deflation
from stages.loops.low_mode_loops import low_mode_loops, with_low_modes
from stages.loops.noise_allocation import loop_noise, trace_allocation
from stages.loops.solver_trials import NoiseSample, TrialSolves, solver_trials
from stages.lqcd.analysis.disconnected import NOT_INCLUDED
from stages.lqcd.lattice.geometry import EVEN, ODD
from stages.lqcd.noise import Dilution
from stages.lqcd.solvers.named import Solve
from workflows import (
    StaggeredDefinition,
    Step,
    deflation_economies,
    deflation_variants,
    variants,
)
from workflows.g2_disconnected.schema import G2Parameters, alternatives, low_modes_wanted
from workflows.g2_disconnected.target import ALLOCATION, NOISE, next_round, suffix, used_after
from workflows.g2_disconnected.target_schema import TargetSection

Coordinates = Mapping[str, Sequence[str | int]]


class G2Workflow(StaggeredDefinition[G2Parameters]):
    """The disconnected vector-current correlator, light, strange and their difference."""

    name = "g2_disconnected"
    title = "Disconnected vector current: light, strange, light minus strange"
    report = "workflows.g2_disconnected.report"
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
        NOISE,
        ALLOCATION,
    )
    schema = G2Parameters

    within: Coordinates = MappingProxyType({})
    """Coordinates along `config` of what has loops; all of them, unless another workflow takes fewer."""

    def build(self) -> None:
        """Add all nodes."""
        self.observables()
        loops, correlator = self.correlators()
        if self.parameters.target:
            self.target(self.parameters.target, loops, correlator)
        self.averages(correlator)

    def correlators(self) -> tuple[list[Node], Node]:
        """Add what leads to C(t) of each configuration; the loops and C(t)."""
        parameters = self.parameters
        modes = self.deflation(parameters.deflation, used_after(self.project.decisions))
        currents = self.mode_currents(modes)
        loops = self.estimator(parameters, modes, currents)
        for name, changed in alternatives(parameters):
            self.estimator(changed, modes, currents, f"{name}_")
        if parameters.exact:
            self.exact_loops()
        return loops, self.workflow.add(disconnected_correlator, *loops, place=Place("correlator"))

    @cached_property
    def operator(self) -> Node:
        """The fermion's operator."""
        links = self.parameters.links
        action = ACTIONS[links.action]
        stage = partial(
            action.stage,
            boundary=links.boundary,
            solves=self.parameters.solves.expected,
            **{option: getattr(links, option) for option in action.options},
        )
        return self.workflow.add(stage, self.configuration, place=Place("operator"))

    def mode_currents(self, modes: Node | None, mark: str = "") -> Node | None:
        """Currents of the modes of a deflation, where the estimator or an alternative averages them."""
        if not modes or not low_modes_wanted(self.parameters):
            return None
        stage = partial(low_mode_loops, current_links=self.parameters.current.links)
        return self.workflow.add(stage, modes, place=Place(f"low_modes{mark}", self.within))

    def estimator(
        self, parameters: G2Parameters, modes: Node | None, currents: Node | None, prefix: str = ""
    ) -> list[Node]:
        """Loops of all flavours: of all noise vectors, sloppy, and of the first few, fine, if there are any.

        Where low modes are averaged, the nodes that solve keep the noisy remainder, and what is returned is
        the sum with the exact part. modes: the deflation that solves take; currents: of these modes.
        """
        deflated = [modes] if modes and parameters.deflation else []
        nodes, solves = [], parameters.solves
        accuracies = [("", solves.sloppy.tolerance, parameters.noise.vectors)]
        accuracies += [("_fine", solves.fine.tolerance, solves.fine.vectors)] if solves.fine else []
        for end, tolerance, vectors in accuracies:
            flavours = self.flavours(parameters, deflated, vectors, solves.to(tolerance), (prefix, end))
            if parameters.estimator.low_modes and currents:
                whole = partial(with_low_modes, masses=parameters.masses.of_stages)
                place = Place(f"{prefix}all_modes{end}", self.within)
                flavours = self.workflow.add(whole, flavours, currents, place=place)
            nodes.append(flavours)
        return nodes

    def flavours(
        self,
        parameters: G2Parameters,
        modes: Sequence[Node],
        vectors: int,
        solve: Solve,
        around: tuple[str, str],
    ) -> Node:
        """Noisy loops of light, strange, and light - strange; around: beginning and end of nodes' names."""
        noise, masses = parameters.noise, parameters.masses
        links, deflated = parameters.current.links, parameters.estimator.low_modes
        over: Coordinates = {"noise": range(vectors), "probe": range(noise.probes), **self.within}
        chunk = {"noise": noise.chunk, "probe": noise.probe_chunk}
        prefix, end = around
        if parameters.estimator.difference == "split_even":
            both = partial(
                split_even_loops,
                masses=masses.of_stages,
                noise=noise.of_stages,
                solve=solve,
                current_links=links,
                deflated_noise=deflated,
            )
            place = Place(f"{prefix}loops_split_even{end}", over, chunk)
            return self.workflow.add(both, self.operator, *modes, place=place)
        loops = []
        for name, mass in masses:
            stage = partial(
                current_loops,
                mass=mass,
                noise=noise.of_stages,
                solve=solve,
                current_links=links,
                deflated_noise=deflated,
            )
            place = Place(f"{prefix}loops_{name}{end}", over, chunk)
            loops.append(self.workflow.add(stage, self.operator, *modes, place=place))
        return self.workflow.add(flavour_loops, *loops, place=Place(f"{prefix}flavours{end}"))

    def exact_loops(self) -> None:
        """Loops of each mass by a point source on every site and colour."""
        solves, links = self.parameters.solves, self.parameters.current.links
        solve = solves.to((solves.fine or solves.sloppy).tolerance)
        for name, mass in self.parameters.masses:
            stage = partial(exact_loops, mass=mass, solve=solve, current_links=links)
            self.workflow.add(stage, self.operator, place=Place(f"exact_{name}"))

    def target(self, target: TargetSection, loops: list[Node], correlator: Node) -> None:
        """Add the nodes that measure a target; in a pilot also the same estimator with fewer eigenvectors."""
        self.allocation(target, loops, correlator)
        section = self.parameters.deflation
        if self.project.decisions or not section:
            return
        for count in target.eigenvectors or ():
            mark = suffix(count)
            place = Place(f"deflation{mark}")
            space, stage = self.space(section), partial(deflation, vectors=count)
            modes = self.workflow.add(stage, self.operator, space, place=place)
            currents = self.mode_currents(modes, mark)
            fewer = self.estimator(self.parameters, modes, currents, f"with{mark}_")
            self.allocation(target, fewer, correlator, mark)

    def allocation(self, target: TargetSection, loops: list[Node], correlator: Node, mark: str = "") -> None:
        """The stochastic errors of each configuration, and what they amount to beside the target."""
        noise = self.workflow.add(loop_noise, *loops, place=Place(f"{NOISE}{mark}"))
        stage = partial(
            trace_allocation,
            target=target.on(self.lattice),
            earlier=[asdict(decision) for decision in self.project.decisions],
        )
        self.workflow.add(stage, noise, correlator, place=Place(f"{ALLOCATION}{mark}"))

    def averages(self, correlator: Node) -> None:
        """Ensemble averages with jackknife errors, and with bootstrap errors where asked for."""
        width, bootstrap = self.parameters.analysis.jackknife_bin, self.parameters.analysis.bootstrap
        average = partial(ensemble_average, jackknife_bin=width)
        self.workflow.add(average, correlator, place=Place("average"))
        if bootstrap:
            resampled = partial(
                bootstrap_average, samples=bootstrap.samples, seed=bootstrap.seed, jackknife_bin=width
            )
            self.workflow.add(resampled, correlator, place=Place("bootstrap"))

    def trials(self, parameters: G2Parameters) -> None:
        """The solvers on the first noise of one configuration, with its low modes."""
        solves, noise, fine = parameters.solves, parameters.noise, parameters.solves.fine
        stage = partial(
            solver_trials,
            candidates=solves.candidates(self.chunk_columns, deflated_solves(parameters)),
            masses=parameters.masses.of_stages,
            solves=TrialSolves(
                solves.sloppy.tolerance,
                fine.tolerance if fine else None,
                [count * noise.probes for count in (noise.vectors, fine.vectors if fine else 0)],
                solves.max_iterations,
            ),
            noise=noise.of_stages,
            sample=NoiseSample(noise.chunk, noise.probe_chunk, parameters.estimator.low_modes),
        )
        modes = self.deflation_of_trials(parameters.deflation)
        place = Place("solver_trials", {"config": (self.project.trial_configuration,)})
        self.workflow.add(stage, self.operator, *modes, place=place)

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
        yield from variants.each(parameters, "solves.solver", ("block_cgrq", "batched_cg"))
        yield from variants.each(parameters, "solves.block", (8, 16, 32))
        yield from variants.each(parameters, "noise.vectors", (vectors // 2, 2 * vectors, 4 * vectors))
        needed = parameters.estimator.low_modes
        yield from deflation_variants(parameters, parameters.deflation, needed)

    def economies(self) -> Mapping[str, Sequence[Any]]:
        """Smaller blocks and chunks, the other solver, lower precision, fewer eigenvectors or none."""
        parameters, noise = self.parameters, self.parameters.noise
        chunks = {
            "noise.chunk": variants.divisors(noise.chunk),
            "noise.probe_chunk": variants.divisors(noise.probe_chunk),
        }
        needed = low_modes_wanted(parameters)
        modes = deflation_economies(parameters.deflation, self.lattice, needed)
        return {**parameters.solves.economies(chunks), **modes}

    def step(self, plan: Plan, store: Store) -> Step:
        """The next round towards a target."""
        return next_round(self.project, plan, store)

    @classmethod
    def status(cls, store: Store) -> list[str]:
        """Predicted against achieved errors of the rounds towards a target."""
        from workflows.g2_disconnected.target_report import target_lines

        return target_lines(store, cls.name)


def deflated_solves(parameters: G2Parameters) -> tuple[int, ...]:
    """Solves that trials compare: without low modes, with all or parts of them, or both.

    Only with them where an estimator averages them, or a target tries numbers of them: there they are needed
    anyway.
    """
    if not parameters.deflation:
        return (0,)
    return (1,) if parameters.vectors_set_noise else (0, *parameters.deflation.tried_parts)


WORKFLOW = G2Workflow
