"""Launch shapes by measurement: what was measured (`table`), what follows (`choice`), how it is measured.

A run only reads: a kernel starts in the shape that the table of this device holds for it, or in the first of
its candidates, which a small model has put in order. `quarkline tune` alone measures. A choice alters a
result by rounding at most.
"""
