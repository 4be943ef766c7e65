"""Stores in motion: merging them, bringing them from elsewhere, sending them there."""
