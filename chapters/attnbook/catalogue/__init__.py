"""The tasks and known mistakes of the book, one module a chapter."""

from attnbook.catalogue import averages as averages
from attnbook.catalogue import self_attention as self_attention
from attnbook.catalogue import projections as projections
from attnbook.catalogue import scaling as scaling
from attnbook.catalogue import masking as masking
