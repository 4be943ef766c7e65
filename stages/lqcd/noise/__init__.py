"""Stochastic sources: counter-based noise that no layout, chunk or worker can alter, and its dilution."""

from stages.lqcd.noise.dilution import Dilution, Partition, Subset, dilute
from stages.lqcd.noise.vectors import Noise, noise_vectors

__all__ = ["Dilution", "Noise", "Partition", "Subset", "dilute", "noise_vectors"]
