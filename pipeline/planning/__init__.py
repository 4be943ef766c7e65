"""Plans: the graph of a workflow, keys of its chunks, which are missing and why."""
