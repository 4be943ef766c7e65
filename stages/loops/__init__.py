"""Stages of quark loops: deflation spaces, current loops, low modes, disconnected correlators."""
