"""The driver's side of a run: clusters, task graphs, events, stopping."""
