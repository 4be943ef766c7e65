"""The kernels on NVIDIA GPUs: CUDA templates in `.cu` files, compiled at run time, behind thin CuPy wrappers.

Beside each wrapper a launch function gives template arguments and grid, by arithmetic on shapes; `compile`
turns a `.cu` file into a kernel. Reductions add in an order that depends only on the shapes of their
arguments, without atomics: the same shapes give the same bits.
"""
