"""The benchmark behind `quarkline bench`: a module for each family of kernels; and scripts that measure more.

Scripts run by `python -m workflows.benchmarks.NAME --help`; they share `script` and the bench's `machine`.
"""
