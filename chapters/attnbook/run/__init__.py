"""Long trainings: the commands for them, and checkpoints to go on from."""
