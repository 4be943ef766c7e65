"""Analysis, from loops per noise vector to correlators with errors."""
