"""Workflows, and what those of other groups are made of.

What stands here is kept stable: definitions and sections that a workflow derives its own from, and parts of
reports; all else may change. A name is loaded when it is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stages.base.front_door import front_door

if TYPE_CHECKING:
    from workflows.parameter_file import FileSection, Location, ParameterFile, Problem, validated
    from workflows.shared import variants
    from workflows.shared.choice import SPACE
    from workflows.shared.definition import Definition, Project, Step
    from workflows.shared.deflation_section import (
        DeflationSection,
        deflation_economies,
        deflation_variants,
    )
    from workflows.shared.ensemble import Configurations, beside
    from workflows.shared.link_smearing import LinkSmearingSection
    from workflows.shared.meson_sections import (
        correlator_section,
        correlator_text,
        correlator_texts,
        mass_section,
        mass_text,
        momentum_text,
        neutral_sections,
    )
    from workflows.shared.quark_sections import Flavours, QuarkParameters, QuarkSolves
    from workflows.shared.report_sections import (
        available,
        average_text,
        degrees_of_freedom,
        errors_in,
        gauge_section,
        loaded,
        node_of,
        nodes_of,
        with_errors,
    )
    from workflows.shared.sections import (
        NAIK_EPSILON,
        STAGGERED_MASS,
        TOLERANCE,
        AnalysisSection,
        EnsembleSection,
        Seed,
        Usual,
        WorkflowParameters,
        checked_parts,
        winding,
    )
    from workflows.shared.solver_sections import (
        SOLVES,
        choice_sections,
        setup_sections,
        solves_of,
        solves_row,
        solves_section,
        spectrum_section,
    )
    from workflows.shared.solves_section import SLOPPY, PositiveSolves, SloppySection, SolverSection
    from workflows.shared.source_sections import (
        Names,
        QuarkSourceSection,
        Times,
        Triples,
        aliases,
        first_chunk,
    )
    from workflows.shared.staggered_quarks import StaggeredDefinition
    from workflows.shared.wilson_quarks import QuarkDefinition
else:
    __all__, __getattr__ = front_door(__name__, __file__)
