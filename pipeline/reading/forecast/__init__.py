"""Forecasts of what a plan takes, learned from the records of earlier chunks."""
