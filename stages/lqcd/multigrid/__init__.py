"""Adaptive geometric multigrid for Wilson-type operators on blocks of right-hand sides."""
