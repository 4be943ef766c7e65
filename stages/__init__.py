"""The physics: a folder of stages for each leg, and below them the library `lqcd` that they stand on.

`errors` holds the one error of a user's mistake. It is all that the engine imports from here.
"""
