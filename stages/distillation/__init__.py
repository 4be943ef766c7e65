"""Stages of distillation: Laplace eigenvectors, perambulators, elementals, correlation matrices."""
