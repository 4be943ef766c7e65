"""Links into the sites of a parity, chosen one by one, packed by way of fields that have them."""

from types import ModuleType
from typing import Any

from numpy.typing import NDArray

from stages.lqcd.kernels.directions import displacements
from stages.lqcd.kernels.dispatch import array_module
from stages.lqcd.lattice.geometry import Lattice


def packed_links(kernels: ModuleType, links: NDArray, lattice: Lattice, parity: int) -> Any:
    """Links ``[site, direction, 3, 3]``, 16, 8 or 6 directions of `hisq_dslash`, 8 of `wilson_dslash`."""
    xp, directions = array_module(links), links.shape[1]
    fields = xp.zeros((2, 4, 2, lattice.half_volume, 3, 3), complex)
    for d, (mu, hops) in enumerate(displacements(directions)):
        field = fields[abs(hops) // 3, mu]
        if hops > 0:
            field[parity] = links[:, d]
        else:
            back = links[:, d].conj().swapaxes(-1, -2)
            field[1 - parity, lattice.neighbour(parity, mu, hops)] = back if directions == 6 else -back
    if hasattr(kernels, "wilson_hop"):
        return kernels.pack_fields(fields[0], (1.0,) * 4, lattice, parity, links.dtype)
    if directions == 6:
        return kernels.pack_spatial(fields[0], lattice, parity, links.dtype)
    return kernels.pack_fields(
        fields[0], fields[1] if directions == 16 else None, lattice, parity, links.dtype
    )


def clover_term(kernels: Any, blocks: Any, name: str) -> tuple[str, Any]:
    """Place and packed matrices by name: "hop", "diagonal twisted", "hop adjoint"; of a twisted mass 0.7."""
    place, _, kind = name.partition(" ")
    packed = kernels.pack(blocks)
    if not kind:
        return place, packed
    twisted = kernels.twisted(packed, 0.7)
    return place, kernels.adjoint(twisted) if kind == "adjoint" else twisted
