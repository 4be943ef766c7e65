"""Declarations: what a stage is, what it takes and returns. Loads neither Dask nor Zarr."""
