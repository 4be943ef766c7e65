"""The kernels on NVIDIA GPUs: CUDA templates in `.cu` files, compiled at run time, behind thin CuPy wrappers.

`launch/` gives template arguments and grids (pure Python), `tuning/` chooses the best of them where it was
measured, `compile` turns a `.cu` file into a kernel. Reductions add in an order that depends on their shape
alone, without atomics: the same shapes give the same bits.
"""
