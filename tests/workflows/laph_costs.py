"""What the nodes of a workflow `laph_mesons` are said to cost."""

from __future__ import annotations

from typing import Any

from pipeline import Cost
from stages.lqcd.lattice.geometry import Lattice
from workflows.laph_mesons.build import WORKFLOW
from workflows.laph_mesons.schema import LaphParameters
from workflows.shared.definition import Project
from workflows.shared.ensemble import Configurations

HEATBATH = {"beta": 6.0, "configurations": 2, "sweeps": 1, "overrelaxation": 0, "seed": 31}


def laph_costs(lattice: Lattice, distillation: dict[str, Any], **sections: Any) -> dict[str, Cost]:
    """Costs by node; sections: those that are not the smallest."""
    values = {
        "workflow": "laph_mesons",
        "ensemble": {"heatbath": {"extents": lattice.extents, **HEATBATH}},
        "quark": {"mass": 2.0, "csw": 1.0, "boundary": "periodic"},
        "smearing": {"kind": "stout", "steps": 1, "rho": 0.1},
        "distillation": distillation,
        "sources": {"times": [0]},
        "solves": {"solver": "bicgstab", "tolerance": 1e-6, "precision": "double"},
        "store": "store",
        "report": "report",
        **sections,
    }
    parameters, ensemble = LaphParameters.model_validate(values), Configurations(("a", "b"), lattice)
    return {n: node.cost for n, node in Project(WORKFLOW, parameters, ensemble).workflow.nodes.items()}
