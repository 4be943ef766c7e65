"""The benchmark behind `quarkline bench`: a module for each family of kernels."""
