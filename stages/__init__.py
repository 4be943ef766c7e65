"""The physics: a folder of stages for each leg, and below them the library `lqcd` that they stand on.

`base` is the ground floor. It is all that the engine imports from here.
"""
