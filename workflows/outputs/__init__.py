"""JSON documents of the commands under `--json`: typed, versioned, one for each; see docs/machine.md."""
