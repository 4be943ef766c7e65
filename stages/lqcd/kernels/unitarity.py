"""When the analytic polar factor of a matrix can be trusted: common to all kernel packages."""

SMALLEST_DETERMINANT = 1e-8
"""Of V^dag V, with V scaled to tr V^dag V = 3: below it the singular values decide."""

LARGEST_UNITARITY_ERROR = 1e-7
"""Of the analytic W before its last Newton step, which squares it; above it the singular values decide."""
