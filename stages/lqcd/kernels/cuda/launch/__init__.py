"""How every CUDA kernel is started: template arguments, grids and shared memory, without a device."""
