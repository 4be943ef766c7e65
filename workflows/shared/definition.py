"""Declaration of a workflow, and what commands get from it: a project made of a parameter file."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from importlib import import_module
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from pipeline import Node, Place, Plan, Store, Workflow
from pipeline.declare.text import counted
from pipeline.planning.manifest import PART
from pipeline.planning.workflow import Economies, Source
from stages.base.errors import InputError
from stages.ensemble.configuration import gauge_observables
from stages.lqcd.lattice.geometry import Lattice
from stages.shared.rehearsal import Rehearsal, rehearsed
from workflows.parameter_file import ParameterFile
from workflows.shared.choice import choose
from workflows.shared.ensemble import Configurations, add_configuration, configurations, described, errors_of
from workflows.shared.ensemble_doubts import ensemble_doubts
from workflows.shared.sections import WorkflowParameters, unusual
from workflows.shared.variants import changed

if TYPE_CHECKING:
    from pipeline.reading.report import Section

Parameters = TypeVar("Parameters", bound=WorkflowParameters)

ELSEWHERE = {"store", "report", "workflow", "cluster"}
"""Keys of a parameter file that are about no result."""

FILE = "parameter_file"
"""Name under which results have the sections of their parameter file."""


@dataclass(frozen=True)
class Elsewhere:
    """Measurement of solvers on the next configuration, for where the file of this one is damaged."""

    file: Path
    """This configuration's."""
    next: str
    """Label of the next one."""
    project: Callable[[], Project]
    """The round that measures on it."""


@dataclass(frozen=True)
class Project:
    """A workflow file made ready: what to compute, where it goes, how it is reported."""

    title: str
    workflow: Workflow
    store: Path
    report: Path
    results: Sequence[str]
    """Nodes that `quarkline export` writes."""
    sections: Callable[[Store], Sequence[Section]]
    """What the report shows beside the engine's own sections."""
    texts: Callable[[Store], Mapping[str, str]]
    """Text files to stand beside the page, by name."""
    rehearse: Callable[[ModuleType], Iterator[tuple[int, int]]]
    """What a run asks of kernels for arrays of a library, briefly; yields parts done and parts in all."""
    warnings: tuple[str, ...] = ()
    """About input that is legal but rarely meant."""
    follow: Callable[[Plan, Store], Step] | None = None
    """What comes after a complete plan of this workflow, where it is one of several rounds."""
    among: Callable[[Sequence[str]], Project] | None = None
    """This project on some of its configurations, by their labels; None where it only chooses a solver."""
    mark: str = ""
    """Of a project on some configurations: `5 of 6 configurations`."""
    variants: Callable[[], Iterator[tuple[str, Workflow]]] | None = None
    """The same with another solver, number of vectors or the like, for forecasts of what that would cost."""
    elsewhere: Elsewhere | None = None
    """Of a round that chooses a solver on a configuration in a file."""


@dataclass(frozen=True)
class Step:
    """Next step after the results of a round."""

    text: str
    """For people, a line."""
    met: bool
    """Whether the target is met."""
    project: Project | None = None
    """The next round; None if the target is met, or cannot be within its limits."""


@dataclass(frozen=True)
class Campaign(Generic[Parameters]):
    """Parameters measured on configurations."""

    parameters: Parameters
    ensemble: Configurations
    warnings: tuple[str, ...] = ()
    """About the file's parameters."""
    decisions: tuple[Any, ...] = ()
    """Of earlier rounds, where a workflow has rounds."""
    undecided: Parameters | None = None
    """The file's own parameters, where trials chose the solver of `parameters`."""
    mark: str = ""
    """Of a campaign that is a part of another one: `5 of 6 configurations`."""
    source: Source | None = None
    """The file itself."""
    trial: int = 0
    """Number of the configuration that solvers are measured on: the first with a file that can be read."""

    @property
    def lattice(self) -> Lattice:
        return self.ensemble.lattice

    @property
    def trial_configuration(self) -> str:
        """Label of the configuration that solvers are measured on."""
        return self.ensemble.labels[self.trial]

    def of_trials(self) -> Campaign[Parameters]:
        """This campaign on the configuration alone that solvers are measured on."""
        return replace(self, ensemble=replace(self.ensemble, labels=(self.trial_configuration,)), trial=0)

    def among(self, labels: Sequence[str]) -> Campaign[Parameters]:
        """This campaign on some of its configurations, with a name of its own in the store."""
        return replace(
            self,
            parameters=self.parameters.model_copy(update={"workflow": f"{self.parameters.workflow}{PART}"}),
            ensemble=replace(self.ensemble, labels=tuple(labels)),
            undecided=None,
            trial=0,
            mark=f"{len(labels)} of {counted(len(self.ensemble.labels), 'configuration')}",
        )


class Nodes(ABC, Generic[Parameters]):
    """The nodes of a workflow: those that several others need are added when they are first asked for."""

    def __init__(self, workflow: Workflow, campaign: Campaign[Parameters]) -> None:
        self.workflow, self.campaign = workflow, campaign
        self.parameters, self.ensemble = campaign.parameters, campaign.ensemble
        self.lattice = campaign.lattice

    @abstractmethod
    def build(self) -> None:
        """Add all nodes of the campaign."""

    def trials(self, parameters: Parameters) -> None:
        """Add what measures solvers on one configuration; parameters: those that leave the choice."""
        raise NotImplementedError

    @cached_property
    def configuration(self) -> Node:
        """Gauge fields."""
        return add_configuration(self.workflow, self.parameters.ensemble, self.ensemble)

    def observables(self) -> Node:
        """Observables of gauge fields that every workflow measures."""
        return self.workflow.add(gauge_observables, self.configuration, place=Place("observables"))


class Definition(ABC, Generic[Parameters]):
    """A workflow: its schema, its nodes, and what is reported of its results.

    A new one derives from this, and is named in `workflows.names` or, outside of this package, by an
    entry point of the group `quarkline.workflows`.
    """

    name: ClassVar[str]
    """In a file's `workflow`, and in the store."""
    title: ClassVar[str]
    """Of the report."""
    results: ClassVar[tuple[str, ...]]
    """Nodes that `quarkline export` writes, where there are any."""
    report: ClassVar[str]
    """Module with `sections(parameters, store)` and `texts(parameters, store)`, loaded for reports alone."""
    starter: ClassVar[Path | None] = None
    """A commented parameter file that `quarkline init` copies; those of this package lie in `workflows`."""
    rehearsals: ClassVar[tuple[Rehearsal, ...]] = ()
    """What `quarkline tune` rehearses of the nodes."""
    schema: type[Parameters]
    nodes: type[Nodes[Parameters]]

    def status(self, store: Store) -> list[str]:
        """Lines for `quarkline status` on what a store has of this workflow."""
        return []

    def rehearse(self, campaign: Campaign[Parameters], xp: ModuleType) -> Iterator[tuple[int, int]]:
        """Rehearse a run's kernels for arrays of `xp`, briefly; yields steps taken and steps in all."""
        nodes = self.nodes(Workflow(self.name), campaign)
        nodes.build()
        if campaign.parameters.solver_is_open:
            nodes.trials(campaign.parameters)
        return rehearsed(self.rehearsals, list(nodes.workflow.nodes.values()), xp)

    def follow(self, campaign: Campaign[Parameters]) -> Callable[[Plan, Store], Step] | None:
        """Function that says what comes after a round of the campaign, None where it has but one."""
        return None

    def prepare(self, file: ParameterFile) -> Project:
        """The workflow of a parameter file, ready to run.

        Raises:
            InputError: a mistake in the file or in the configurations and other files that it names.
        """
        campaign = self.campaign(file)
        return self._choosing(campaign) if campaign.parameters.solver_is_open else self.project(campaign)

    def campaign(self, file: ParameterFile) -> Campaign[Parameters]:
        """Campaign that a file asks for. Raises InputError."""
        parameters = self.schema.read(file)
        ensemble = configurations(file, parameters.ensemble)
        if parameters.ensemble.files:  # what is generated has been checked with the parameters
            file.refuse(parameters.problems_with(ensemble.lattice, len(ensemble.labels)))
        source = Source(file.text, str(file.path.absolute()), str(Path.cwd()))
        doubts = [*unusual(parameters), *parameters.doubts()]
        doubts += ensemble_doubts(ensemble, parameters.needs_fixed_gauge)
        return Campaign(parameters, ensemble, file.warnings(doubts), source=source)

    def project(self, campaign: Campaign[Parameters]) -> Project:
        """The project of one round."""
        workflow, parameters = self.build(campaign), campaign.parameters
        return Project(
            title=self.title,
            workflow=workflow,
            store=Path(parameters.store).expanduser(),
            report=Path(parameters.report).expanduser(),
            results=[name for name in self.results if name in workflow.nodes],
            sections=partial(self._reported, "sections", parameters),
            texts=partial(self._reported, "texts", parameters),
            rehearse=partial(self.rehearse, campaign),
            warnings=campaign.warnings,
            follow=self.follow(campaign),
            among=partial(self._among, campaign),
            mark=campaign.mark,
            variants=partial(self._variants, campaign),
        )

    def variants(self, parameters: Parameters) -> Iterator[tuple[str, Parameters]]:
        """Parameters with one thing changed that alters the cost, and what that is."""
        return iter(())

    def economies(self, campaign: Campaign[Parameters]) -> Mapping[str, Sequence[Any]]:
        """Other values of keys that a plan takes less memory with, as `pipeline.planning.workflow.Economies`.

        Keys whose values alter results least come first.
        """
        return {}

    def _economical(
        self, campaign: Campaign[Parameters], build: Callable[[Campaign[Parameters]], Workflow]
    ) -> Economies:
        """Economies of a campaign whose workflow is built so."""

        def workflow(changes: Mapping[str, Any]) -> Workflow:
            parameters = campaign.parameters
            for key, value in changes.items():
                parameters = changed(parameters, key, value)
            for location, text in chain(parameters.contradictions(), parameters.misfits(campaign.lattice)):
                raise InputError(f"`{'.'.join(map(str, location))}` {text}")
            return build(replace(campaign, parameters=parameters, undecided=None))

        return Economies(self.economies(campaign), workflow)

    def _variants(self, campaign: Campaign[Parameters]) -> Iterator[tuple[str, Workflow]]:
        for label, parameters in self.variants(campaign.parameters):
            try:
                yield label, self.build(replace(campaign, parameters=parameters, undecided=None))
            except InputError:  # that cannot be, as more vectors than there are modes
                continue

    def _among(self, campaign: Campaign[Parameters], labels: Sequence[str]) -> Project:
        """The project of a part of a campaign, after which no round follows."""
        return replace(self.project(campaign.among(labels)), follow=None)

    def physics(self, parameters: Parameters) -> dict[str, Any]:
        """Action, masses, operator, sign, factors and the like, by name, for readers of a result alone.

        In JSON's types.
        """
        return {}

    def about(self, campaign: Campaign[Parameters]) -> dict[str, Any]:
        """Attributes of all results of a campaign: in files, in notebooks, in the report's head."""
        parameters, ensemble = campaign.parameters, campaign.ensemble
        file = parameters.model_dump(mode="json", exclude_none=True, exclude=ELSEWHERE)
        return {
            "title": self.title,
            **({"partial": campaign.mark} if campaign.mark else {}),
            **described(parameters.ensemble, ensemble),
            **self.physics(parameters),
            "units": "lattice units, a = 1",
            "errors": errors_of(len(ensemble.labels), parameters.analysis.jackknife_bin),
            FILE: file,
        }

    def build(self, campaign: Campaign[Parameters]) -> Workflow:
        """Workflow of a campaign with all nodes, wired."""
        workflow = Workflow(campaign.parameters.workflow, self.about(campaign), campaign.source)
        nodes = self.nodes(workflow, campaign)
        nodes.build()
        if campaign.undecided is not None:
            nodes.trials(campaign.undecided)
        workflow.economies = self._economical(campaign, self.build)
        return workflow

    def _reported(self, part: str, parameters: Parameters, store: Store) -> Any:
        """Sections or texts of a finished run."""
        return getattr(import_module(self.report), part)(parameters, store)

    def _choosing(self, campaign: Campaign[Parameters]) -> Project:
        """The project of the round that chooses a solver."""
        workflow = self._build_trials(campaign)
        follow = partial(self._after_trials, campaign)
        return replace(
            self.project(campaign),
            workflow=workflow,
            results=(),
            follow=follow,
            among=None,
            elsewhere=self._elsewhere(campaign),
        )

    def _build_trials(self, campaign: Campaign[Parameters]) -> Workflow:
        """Workflow of the round that chooses a solver."""
        workflow = Workflow(self.name, source=campaign.source)
        self.nodes(workflow, campaign.of_trials()).trials(campaign.parameters)
        workflow.economies = self._economical(campaign, self._build_trials)
        return workflow

    def _elsewhere(self, campaign: Campaign[Parameters]) -> Elsewhere | None:
        """The same round on the next configuration, if there is one in a file."""
        ensemble, later = campaign.ensemble, campaign.trial + 1
        if not ensemble.files or later == len(ensemble.labels):
            return None
        file = ensemble.files[campaign.trial_configuration]
        project = partial(self._choosing, replace(campaign, trial=later))
        return Elsewhere(file, ensemble.labels[later], project)

    def _after_trials(self, campaign: Campaign[Parameters], plan: Plan, store: Store) -> Step:
        """The campaign, whose keys are those of a file that names the solver itself."""
        text, parameters = choose(campaign.parameters, plan, store)
        chosen = replace(campaign, parameters=parameters, undecided=campaign.parameters)
        return Step(text, met=True, project=self.project(chosen))
