"""Workflow: Wilson-clover propagators and meson two-point functions."""
