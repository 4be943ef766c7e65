"""The store of immutable chunks: commits, checkpoints, locks, digests of files."""
