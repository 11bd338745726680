"""Weights packed into blocks, as GGUF files store them: four to 32 bits each.

A block holds a few numbers that all its weights share, such as a scale, and
then a small whole number for each weight. `TYPES` says for each way of
storing how long a block is and how its weights are computed from its bytes.

Source: github.com/ggml-org/ggml, src/ggml-common.h, for the blocks of 32
weights; docs/gguf.md there for the numbers of the types.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np


class Stored(NamedTuple):
    """A way to store numbers in blocks.

    Attributes:
        name: what ggml calls it.
        weights: how many weights a block holds.
        size: how many bytes a block takes.
        unpack: computes the weights of blocks: (blocks, size), uint8 →
            (blocks, weights), floats.
    """

    name: str
    weights: int
    size: int
    unpack: Callable[[np.ndarray], np.ndarray]


def _f32(blocks):
    """Read blocks of four bytes as one float32 number each."""
    return blocks.view("<f4")


def _f16(blocks):
    """The number of 16 bits that a block consists of, in 32 bits."""
    return blocks.view("<f2").astype(np.float32)


def _q8_0(blocks):
    """A scale of 16 bits, and 32 whole numbers from −128 to 127."""
    scale = blocks[:, :2].copy().view("<f2").astype(np.float32)
    return scale * blocks[:, 2:].view(np.int8)


def _nibbles(packed):
    """Sixteen bytes → 32 numbers of 4 bits: first all low halves, then all
    high ones."""
    low = packed & 15
    high = packed >> 4
    return np.concatenate([low, high], axis=1)


def _q4_0(blocks):
    """A scale of 16 bits, and 32 whole numbers from 0 to 15, of which 8
    means nought."""
    scale = blocks[:, :2].copy().view("<f2").astype(np.float32)
    return scale * (_nibbles(blocks[:, 2:]).astype(np.int8) - 8)


def _q4_1(blocks):
    """A scale and a smallest value of 16 bits each, and 32 whole numbers
    from 0 to 15: value = scale · number + smallest."""
    pair = blocks[:, :4].copy().view("<f2").astype(np.float32)
    scale = pair[:, :1]
    smallest = pair[:, 1:]
    return scale * _nibbles(blocks[:, 4:]) + smallest


#: The types that are read, by the number that a file has for them.
TYPES = {
    0: Stored("F32", 1, 4, _f32),
    1: Stored("F16", 1, 2, _f16),
    2: Stored("Q4_0", 32, 18, _q4_0),
    3: Stored("Q4_1", 32, 20, _q4_1),
    8: Stored("Q8_0", 32, 34, _q8_0),
}
