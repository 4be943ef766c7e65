"""The subcommands of `quarkline`, one a file; heavy imports stay inside the functions: `--help` is quick."""
