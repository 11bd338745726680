"""A long training that survives: its checkpoints, and the commands."""
