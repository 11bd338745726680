"""What a reader is told: the one room in which findings become sentences.

First what is wrong, in words; then the smallest case, with as many numbers as
it takes to see it. Nothing is decided here. Whoever changes a sentence changes
what a reader reads, and neither which mistake is recognised nor which question
is asked.
"""

from attnbook.teach.check.telling.helping import help_lines
from attnbook.teach.check.telling.messages import (
    again,
    agreement,
    difference_words,
    known_mistake,
    not_attempted,
    right,
    short,
    short_error,
    side_effects,
    slip,
    stopped,
    wrong,
)
from attnbook.teach.check.telling.results import describe, headline, likeness

__all__ = [
    "again",
    "agreement",
    "describe",
    "difference_words",
    "headline",
    "help_lines",
    "known_mistake",
    "likeness",
    "not_attempted",
    "right",
    "short",
    "short_error",
    "side_effects",
    "slip",
    "stopped",
    "wrong",
]
