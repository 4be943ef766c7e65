"""Panels of the pages, one a file: what it reads of a campaign, and how that is shown."""
