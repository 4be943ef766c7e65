"""Workflow: connected vector-current correlators of HISQ quarks, with low modes from all sources."""
