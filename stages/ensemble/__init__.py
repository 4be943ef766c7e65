"""Stages of gauge configurations: files, heat bath, smearing, fermion operators."""
