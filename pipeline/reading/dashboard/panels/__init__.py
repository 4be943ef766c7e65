"""Panels of the engine's own pages: what each reads of a campaign, and how that is shown."""
