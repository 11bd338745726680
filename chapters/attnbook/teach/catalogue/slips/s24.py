"""Slips of chapter 24."""

from attnbook.teach.catalogue import c24_hands as c24

c24.clipped.slip(
    "short ones made longer",
    "What happens to a gradient that is shorter than the limit?",
    lambda parts, limit: parts * limit / parts.norm(),
)
c24.ddp_losses.slip(
    "one number for all",
    "Does each rank go back from its own targets, or from all?",
    lambda losses, real: (
        (losses * real).sum() / real.sum() + 0 * losses.sum(-1)
    ),
)
