"""One lattice on several GPUs of a machine: one address space, cut in t (docs/notes/scaling.md)."""
