"""Chapter tasks and known mistakes."""
