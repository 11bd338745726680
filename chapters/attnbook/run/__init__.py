"""Long trainings: commands to start them, and to take them up again.

While a training runs it writes checkpoints, from which it goes on to the bit
after it was stopped. Several processes can share one training.
"""
