"""Stages of connected vector correlators: meson fields, random walls, correlators."""
