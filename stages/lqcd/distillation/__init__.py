"""Distillation and stochastic LapH: noise in the space of Laplacian eigenvectors, its dilution, sources."""
