"""Workflow: the disconnected vector-current correlator, light, strange and their difference."""
