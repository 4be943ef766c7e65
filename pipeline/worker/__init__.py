"""A worker's side of a run: tasks, results that stay, memory, energy, end of life."""
