"""Quark propagators and what is made of them: sources, smearing, solves in blocks, meson contractions."""
