"""The ground floor that engine and library share: errors, GPUs, compilation, files, caches, memory."""
