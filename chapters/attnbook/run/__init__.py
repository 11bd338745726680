"""What makes a long training survive: checkpoints and the command."""
