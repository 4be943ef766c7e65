"""Workflow: mesons by distillation and stochastic LapH."""
