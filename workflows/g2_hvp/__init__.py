"""Workflow: a_mu from the connected and disconnected vector correlators, with its error budget."""
