"""The physics: one short file per stage; below it the library it stands on (lattice, kernels, gauge, ...)."""
