"""Campaigns: jobs of a batch system that compute a workflow until nothing is missing."""
