"""The engine that judges an answer: it knows tasks, and no book."""
