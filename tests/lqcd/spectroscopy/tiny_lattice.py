"""The lattice that the tests of this folder share."""

from stages.lqcd.lattice.geometry import Lattice

LATTICE = Lattice((4, 2, 2, 6))
