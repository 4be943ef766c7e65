"""A correlator as a text table, for people and for plotting programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

WIDTH = 24


def correlator_table(
    correlator: ArrayLike, error: ArrayLike, flavours: Sequence[str], metadata: Mapping[str, object]
) -> str:
    """Columns t, C(t) and its error for each flavour; `correlator` and `error` ``[flavour, time]``.

    The metadata stand above, a line each, behind '#', so that `numpy.loadtxt` reads the table; values have
    all their digits.
    """
    values = np.stack([np.asarray(correlator, float), np.asarray(error, float)], axis=1)
    rows = values.reshape(-1, values.shape[-1]).T
    names = [name for flavour in flavours for name in (f"C {flavour}", "error")]
    head = [f"# {name}: {value}" for name, value in metadata.items()]
    head.append(f"#{'t':>5}" + "".join(name.rjust(WIDTH) for name in names))
    body = [f"{t:6d}" + "".join(f"{value:{WIDTH}.15e}" for value in row) for t, row in enumerate(rows)]
    return "\n".join([*head, *body]) + "\n"
