"""The split-even estimator of light minus strange (one-end trick, arXiv:1903.10447), beside the plain one.

Both masses share their links, so that their normal operators A_l = 4 m_l^2 + B, A_s = 4 m_s^2 + B commute and

    A_l^-1 - A_s^-1 = 4 (m_s^2 - m_l^2) A_l^-1 A_s^-1.

With y_l = A_l^-1 eta, y_s = A_s^-1 eta, the trace over the sites of one parity is estimated by

    J_mu(t) = - 4 (m_s^2 - m_l^2) Im sum_{x in t} y_s(x)^dag eta_mu(x) U_mu(x) (D y_l)(x + mu),
    density = (4/V) (m_s - m_l) Re [4 m_l m_s y_s^dag y_l - (D y_s)^dag (D y_l)],

instead of eta^dag (...) (y_l - y_s), which has the same expectation and takes the same two solves: both stand
beside each other in the result. The strange quark is the bra and the light one carries the derivative. The
exchange of the two has the same expectation, too, but pairs the light quark's infrared modes, undamped by D,
with the noise of the strange quark's ultraviolet ones: on 4^4 with random links, m_s = 0.21, its errors are
4, 10 and 79 times as large at m_l = 0.05, 0.02 and 0.005, and the mean of both is worse than this one alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stages.base.errors import InputError
from stages.lqcd.estimators.trace import Contractions, LoopTrace
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.lattice.geometry import Lattice


@dataclass(frozen=True)
class SplitEvenTrace:
    """Traces of light, strange, and light - strange, from one solve of each mass.

    light, strange: of the same dslash, current and deflation. Raises InputError for two sets of links.
    """

    light: LoopTrace
    strange: LoopTrace

    flavours = (3,)
    """The extent of the flavour axis."""

    def __post_init__(self) -> None:
        if self.light.dslash.links is not self.strange.dslash.links:
            raise InputError(
                "the split-even difference is exact only where both masses share their links: "
                "give them one naik_epsilon, or take the plain difference"
            )

    @property
    def lattice(self) -> Lattice:
        return self.light.lattice

    def contract(self, parity: int, sources: Array) -> Contractions:
        """Current ``[N, flavour, mu, t]``, density ``[N, flavour]`` of sources ``[site, 3, N]`` on `parity`.

        Raises as `LoopTrace.contract`.
        """
        light, strange = self.light, self.strange
        sources = light.deflated(parity, sources)
        y, hopped = light.solve(parity, sources)
        strange_y, strange_hopped = strange.solve(parity, sources)
        factor = 4 * (strange.mass**2 - light.mass**2)
        current = [
            light.current(parity, sources, hopped),
            strange.current(parity, sources, strange_hopped),
            factor * light.current(parity, strange_y, hopped),
        ]
        scalar = 4 * light.mass * strange.mass * light.dots(strange_y, y) - light.dots(strange_hopped, hopped)
        density = [
            light.density(sources, y),
            strange.density(sources, strange_y),
            4 / self.lattice.volume * (strange.mass - light.mass) * scalar,
        ]
        return Contractions(np.stack(current, axis=1), np.stack(density, axis=1))
