"""Packed weights: each way of storing them against the format's package."""

import gguf as theirs
import numpy as np
import pytest
from gguf_files import KINDS

from attnbook.packed import TYPES


@pytest.mark.parametrize("kind", KINDS)
def test_every_pattern_of_bits_is_unpacked_as_by_the_package(kind):
    """All bytes in all places of a block, and random scales."""
    stored = TYPES[kind.value]
    rng = np.random.default_rng(0)
    blocks = rng.integers(0, 256, (512, stored.size), dtype=np.uint8)
    with np.errstate(all="ignore"):  # among the scales are NaN and ∞
        expected = theirs.dequantize(blocks, kind)
        found = stored.unpack(blocks)
    assert found.dtype == np.float32
    assert np.array_equal(found, expected, equal_nan=True)
    assert (stored.weights, stored.size) == theirs.GGML_QUANT_SIZES[kind]
