"""Estimators of quark loops: stochastic, exact, and truncated-solver combinations."""
