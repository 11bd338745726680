"""The tasks and known mistakes of the book, one module a chapter."""

from attnbook.catalogue import averages as averages
from attnbook.catalogue import self_attention as self_attention
from attnbook.catalogue import projections as projections
from attnbook.catalogue import scaling as scaling
from attnbook.catalogue import masking as masking
from attnbook.catalogue import multi_head as multi_head
from attnbook.catalogue import layer_norms as layer_norms
from attnbook.catalogue import feed_forward as feed_forward
from attnbook.catalogue import positions_taught as positions_taught
from attnbook.catalogue import block as block
from attnbook.catalogue import language_model as language_model
from attnbook.catalogue import families as families
from attnbook.catalogue import caching as caching
from attnbook.catalogue import generating as generating
from attnbook.catalogue import real_model as real_model
