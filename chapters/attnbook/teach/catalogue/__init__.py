"""The tasks and known mistakes of the book, one module a chapter."""

from attnbook.teach.catalogue import c01_averages as c01_averages
from attnbook.teach.catalogue import c02_self_attention as c02_self_attention
from attnbook.teach.catalogue import (
    c03_queries_keys_values as c03_queries_keys_values,
)
from attnbook.teach.catalogue import c04_scaling as c04_scaling
from attnbook.teach.catalogue import c05_masking as c05_masking
from attnbook.teach.catalogue import c06_multi_head as c06_multi_head
from attnbook.teach.catalogue import c07_norms as c07_norms
from attnbook.teach.catalogue import c08_feed_forward as c08_feed_forward
from attnbook.teach.catalogue import c09_positions as c09_positions
from attnbook.teach.catalogue import c10_block as c10_block
from attnbook.teach.catalogue import c11_language_model as c11_language_model
from attnbook.teach.catalogue import c12_encoder_decoder as c12_encoder_decoder
from attnbook.teach.catalogue import c13_cache as c13_cache
from attnbook.teach.catalogue import c14_generating as c14_generating
from attnbook.teach.catalogue import c15_real_model as c15_real_model
