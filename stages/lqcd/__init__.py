"""The physics library: lattice, kernels, operators, solvers, analysis. It never imports the engine."""
