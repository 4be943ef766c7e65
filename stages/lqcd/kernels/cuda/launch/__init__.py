"""Launches of the CUDA kernels: template arguments, grids and shared memory, without a device."""
