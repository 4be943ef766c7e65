"""Forms in which a GPU keeps the links of an operator: which one products read, and how many bytes it has.

The choice is made here and nowhere else. How links are packed in a form, and in which shapes products read
it, say classes of `stages.lqcd.kernels.cuda.hisq_dslash` and `stages.lqcd.kernels.cuda.wilson_dslash`.
A host keeps matrices in every precision.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, unique

from stages.lqcd.kernels.directions import HISQ_DIRECTIONS, NAIVE_DIRECTIONS
from stages.lqcd.lattice.geometry import Lattice

NUMBER = {"double": 8, "single": 4, "half": 4}
"""Bytes of a number of links, by precision; of a word in half."""

FEW, NARROW = 4, 8
"""Right-hand sides up to which long links in nine reals are fastest on a GPU, in double and in single: where
more share a link, rebuilding it costs more than the bytes save.
"""

MANY = 16
"""Right-hand sides from which on arithmetic bounds Wilson's product in double on a GPU."""


@unique
class StaggeredForm(Enum):
    """Storage of a fat and a long link; the value is how many numbers, or words of 32 bits, both have."""

    MATRICES = 18 + 18
    NINE_REALS = 18 + 9
    """Long links that are one real number times U(3) matrices, as those of HISQ, in nine numbers each."""
    SHORT = 16
    """For short fields: numbers of fat links in 20 bits, nine angles of such long ones in 16."""
    IN_FIELDS = 0
    """Nothing beside the fields that links were made in."""


@unique
class WilsonForm(Enum):
    """Storage of a link in SU(3); the value is how many real numbers it has."""

    MATRICES = 18
    TWO_ROWS = 12
    IN_FIELDS = 0
    """Nothing beside the field that links were made in."""


@dataclass(frozen=True)
class Packing:
    """Use of an operator by solves, from which follows the form of its links in each precision on a GPU.

    double: links are packed in double, too, forward and backward. Otherwise double products read the fields,
    as those of reliable updates, one in a hundred, may, in longer time. block: right-hand sides of most
    products.
    """

    double: bool = True
    block: int = 64

    @classmethod
    def of(cls, block: int, precision: str = "double-single") -> Packing:
        """Packing for solves of a block in 'double', 'double-single' or 'double-half'.

        Links are packed in double only where double is what solves apply again and again.
        """
        return cls(precision == "double", block)

    def staggered(self, precision: str, directions: int) -> StaggeredForm:
        """Form of links to so many neighbours of a site, for products in 'double', 'single' or 'half'.

        Half has a form of its own for up to `FEW` right-hand sides; beyond it is single.
        """
        if precision == "double" and not self.double:
            return StaggeredForm.IN_FIELDS
        if directions != HISQ_DIRECTIONS:
            return StaggeredForm.MATRICES
        if precision == "half" and self.block <= FEW:
            return StaggeredForm.SHORT
        short = self.block <= (FEW if precision == "double" else NARROW)
        return StaggeredForm.NINE_REALS if short else StaggeredForm.MATRICES

    def wilson(self, precision: str) -> WilsonForm:
        """Form of links for products in 'double' or 'single'.

        In single precision rebuilding a row costs nothing at 32 right-hand sides, and gains before. In double
        it gains 5 % of BiCGstab at 8; at one, and where arithmetic bounds the kernel, it does not
        (docs/notes/wilson.md).
        """
        if precision == "single":
            return WilsonForm.TWO_ROWS
        if not self.double:
            return WilsonForm.IN_FIELDS
        return WilsonForm.TWO_ROWS if 1 < self.block < MANY else WilsonForm.MATRICES


WIDE = Packing()
"""For blocks of any width, and many products in double."""


def staggered_bytes(lattice: Lattice, directions: int, precision: str, form: StaggeredForm) -> int:
    """Bytes of packed links of both parities."""
    return lattice.volume * directions // 2 * form.value * NUMBER[precision]


def wilson_bytes(lattice: Lattice, precision: str, form: WilsonForm) -> int:
    """Bytes of packed links of both parities."""
    return lattice.volume * NAIVE_DIRECTIONS * form.value * NUMBER[precision]
