"""The published models in the tests: a mark, and files read once."""

import functools

import pytest

from attnbook import gguf, published

SMOLLM2 = "SmolLM2-135M-Instruct"
MINILM = "all-MiniLM-L6-v2"


def _needs(name):
    """Skip a test, with the reason, where a model is not installed."""
    reason = published.missing(name)
    return pytest.mark.skipif(reason is not None, reason=str(reason))


needs_smollm2 = _needs(SMOLLM2)
needs_minilm = _needs(MINILM)


@functools.cache
def smollm2_file():
    """The file of SmolLM2, read once for all tests of a run."""
    return gguf.read(published.find(SMOLLM2))
