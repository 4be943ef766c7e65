"""Stages of mesons: sources, multigrid setups, propagators, two-point functions."""
