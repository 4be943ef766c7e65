"""Workflow: pion and rho correlators of HISQ quarks, of all tastes."""
