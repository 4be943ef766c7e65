"""Stages that give a gauge configuration, generated or read from a file, and what is measured on it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np

from pipeline import At, Cost, Dims, Keyed, Node, Resources, stage
from stages.base.errors import InputError
from stages.lqcd.gauge.heatbath import thermalised
from stages.lqcd.kernels.dispatch import array_module_of
from stages.lqcd.kernels.transfer import copy_to_host
from stages.lqcd.lattice.formats import read_gauge
from stages.lqcd.lattice.geometry import DIRECTIONS, PARITIES, Lattice
from stages.lqcd.lattice.plaquette import link_statistics, plaquette
from stages.lqcd.lattice.sizes import links_bytes
from stages.shared.costs import PROCESS, RECORD, of_lattice
from stages.shared.work import heatbath_work, links_work


class GaugeLinks(NamedTuple):
    """A gauge field without boundary signs: U_mu(x) carries x + mu to x; it is not reunitarised."""

    links: Annotated[np.ndarray, Dims("mu", "parity", "site", "row", "column")]
    """complex64 or complex128, as generated or as in the file."""
    extents: Annotated[np.ndarray, Dims("mu")]
    """int64, x y z t."""

    @property
    def lattice(self) -> Lattice:
        x, y, z, t = self.extents.tolist()
        return Lattice((x, y, z, t))


class GaugeObservables(NamedTuple):
    """Mean Re tr P / 3 over all, spatial and temporal planes; mean Re tr U / 3; largest |U^dag U - 1|."""

    plaquette: Annotated[np.ndarray, Dims("plane")]
    link_trace: Annotated[np.ndarray, Dims()]
    unitarity_deviation: Annotated[np.ndarray, Dims()]


@of_lattice
def heatbath_cost(node: Node, lattice: Lattice) -> Cost:
    """Cost of a gauge field, its copy by checkerboard, and the result."""
    links = links_bytes(lattice)
    sweeps = node.parameters["sweeps"] * (1 + node.parameters["overrelaxation"])
    work = heatbath_work(lattice, sweeps)
    return Cost(PROCESS + 3 * links, links, links, work=work, terms={"links: fields": links})


@of_lattice
def links_cost(node: Node, lattice: Lattice) -> Cost:
    """Cost of links that stay where they are used."""
    steps = int(node.parameters.get("steps", 0))
    links, work = links_bytes(lattice), links_work(lattice, 2 + 6 * steps)
    return Cost(device_memory=links, work=work, terms={"links: fields": links})


@stage(
    version="1",
    over=("config",),
    resources=Resources(device=1),
    keyed=Keyed(backend=True),
    labels={"mu": DIRECTIONS, "parity": PARITIES},
    cost=heatbath_cost,
)
def heatbath_configuration(
    *, at: At, extents: tuple[int, int, int, int], beta: float, seed: int, sweeps: int, overrelaxation: int
) -> GaugeLinks:
    """Generate the last configuration of a quenched SU(3) chain of its own.

    The chain is seeded by `seed` and the configuration's label.

    Wilson action with `beta` = 6 / g^2; each of `sweeps` sweeps is a heat-bath pass and `overrelaxation`
    over-relaxation passes, from a hot start; on the GPU where there is one. Raises InputError.
    """
    lattice = Lattice(extents)
    chain = thermalised(
        lattice,
        beta,
        seed,
        str(at.one("config")),
        sweeps,
        overrelaxation,
        lambda done, total: at.progress(done, total),
        array_module_of(at.backend),
    )
    links = copy_to_host(chain)
    at.record(beta=beta, sweeps=sweeps, plaquette=plaquette(links, lattice).total)
    return GaugeLinks(links, np.array(lattice.extents))


@stage(version="1", over=("config",), transient=True, keyed=Keyed(without=("wrong_headers",)))
def file_configuration(
    *, at: At, path: Path, extents: tuple[int, int, int, int], wrong_headers: tuple[str, ...] = ()
) -> GaugeLinks:
    """The configuration in a file of any known format, its checksums verified, its links as stored.

    wrong_headers: labels of those whose header may state another plaquette beside a right checksum. Raises
    InputError for a damaged file and for a lattice other than `extents`.
    """
    field = read_gauge(path, wrong_header=at.one("config") in wrong_headers)
    if field.lattice != Lattice(extents):
        raise InputError(
            f"{path} holds a lattice of {field.lattice}, but the ensemble is {Lattice(extents)}: "
            "remove the file from the ensemble, or measure it in a workflow of its own"
        )
    return GaugeLinks(field.links, np.array(field.lattice.extents))


@of_lattice
def observables_cost(node: Node, lattice: Lattice) -> Cost:
    """Cost of some numbers from all links."""
    return Cost(stored=RECORD, work=links_work(lattice, 4))


@stage(version="1", over=("config",), labels={"plane": ("all", "spatial", "temporal")}, cost=observables_cost)
def gauge_observables(gauge: GaugeLinks, *, at: At) -> GaugeObservables:
    """Plaquettes (normalised to 1), link trace and distance from unitarity of a configuration."""
    statistics = link_statistics(np.ascontiguousarray(gauge.links))
    return GaugeObservables(
        np.array(plaquette(gauge.links, gauge.lattice)),
        np.array(statistics.trace),
        np.array(statistics.unitarity_deviation),
    )
