"""Slips of chapter 10."""

from functools import partial

from attnbook.teach.catalogue import c10_block as c10


def _counted(d, d_ff, counts):
    """So many times d², d · d_ff, d and d_ff; right is 4, 2, 9 and 1."""
    return sum(n * x for n, x in zip(counts, (d * d, d * d_ff, d, d_ff)))


_BIAS = "What has a layer beside its matrix?"
_NORM = "How many norms has a block, and how many numbers does each learn?"
_WIDE = "How wide is what a matrix makes, and so its bias?"
c10.block_parameters.slip(
    "the matrices alone are counted",
    _BIAS,
    partial(_counted, counts=(4, 2, 0, 0)),
)
c10.block_parameters.slip(
    "the biases are missing", _BIAS, partial(_counted, counts=(4, 2, 2, 0))
)
c10.block_parameters.slip(
    "4 d_model are missing",
    "What do two norms learn, and what four biases of attention?",
    partial(_counted, counts=(4, 2, 5, 1)),
)
c10.block_parameters.slip(
    "2 d_model are missing", _NORM, partial(_counted, counts=(4, 2, 7, 1))
)
c10.block_parameters.slip(
    "the inner width is taken for 4 d_model",
    "What is d_ff given for?",
    partial(_counted, counts=(12, 0, 13, 0)),
)
c10.block_parameters.slip(
    "d_ff is forgotten in a bias",
    "What is d_ff given for?",
    partial(_counted, counts=(4, 2, 13, 0)),
)
c10.block_parameters.slip(
    "attention has three matrices",
    "The contexts stand side by side. What comes then?",
    partial(_counted, counts=(3, 2, 8, 1)),
)
c10.block_parameters.slip(
    "the feed-forward layer has one matrix",
    "Up, and then?",
    partial(_counted, counts=(4, 1, 9, 1)),
)
c10.block_parameters.slip(
    "the feed-forward biases are both d_ff wide",
    _WIDE,
    partial(_counted, counts=(4, 2, 8, 2)),
)
c10.block_parameters.slip(
    "the feed-forward biases are both d_model wide",
    _WIDE,
    partial(_counted, counts=(4, 2, 10, 0)),
)
c10.block_parameters.slip(
    "a third norm is counted",
    "Whose is the norm after the last block?",
    partial(_counted, counts=(4, 2, 11, 1)),
)
c10.post_norm_block.slip(
    "the norms have changed places",
    "Which norm belongs to which layer?",
    lambda x, attention, feed_forward, norm_1, norm_2: norm_1(
        (y := norm_2(x + attention(x))) + feed_forward(y)
    ),
)
c10.post_norm_block.slip(
    "the sum after attention is not normalised",
    "What does the feed-forward layer read, the first sum or what a norm "
    "makes of it?",
    lambda x, attention, feed_forward, norm_1, norm_2: norm_2(
        (y := x + attention(x)) + feed_forward(y)
    ),
)
c10.post_norm_block.slip(
    "the second layer reads through the first norm, and adds to the sum "
    "before it",
    "Is the first norm on the stream, or on what the second layer reads?",
    lambda x, attention, feed_forward, norm_1, norm_2: norm_2(
        (y := x + attention(x)) + feed_forward(norm_1(y))
    ),
)
c10.post_norm_block.slip(
    "the second sum is not normalised",
    "What was done last to the stream that leaves the block?",
    lambda x, attention, feed_forward, norm_1, norm_2: (
        (y := norm_1(x + attention(x))) + feed_forward(y)
    ),
)
c10.post_norm_block.slip(
    "one norm serves both layers",
    "Which norm belongs to which layer?",
    lambda x, attention, feed_forward, norm_1, norm_2: norm_1(
        (y := norm_1(x + attention(x))) + feed_forward(y)
    ),
)
c10.post_norm_block.slip(
    "the second branch is added to the input of the block",
    "What has become of attention's result in the stream?",
    lambda x, attention, feed_forward, norm_1, norm_2: norm_2(
        x + feed_forward(norm_1(x + attention(x)))
    ),
)
c10.post_norm_block.slip(
    "the layers read through the norms, too",
    "What does a layer read where the norm comes after the addition?",
    lambda x, attention, feed_forward, norm_1, norm_2: norm_2(
        (y := norm_1(x + attention(norm_1(x)))) + feed_forward(norm_2(y))
    ),
)
c10.post_norm_block.slip(
    "the branches are not added to the stream",
    "What is normalised: a layer's result, or its sum with what it read?",
    lambda x, attention, feed_forward, norm_1, norm_2: norm_2(
        feed_forward(norm_1(attention(x)))
    ),
)
c10.post_norm_block.slip(
    "the feed-forward layer reads the input of the block",
    "What does the second layer read?",
    lambda x, attention, feed_forward, norm_1, norm_2: norm_2(
        norm_1(x + attention(x)) + feed_forward(x)
    ),
)


def _decode(x, memory, attention, cross, feed_forward, norms, order=(0, 1, 2)):
    """A decoder's block in which the three layers come in another order.

    Args:
        norms: the norm before each layer: of attention, cross-attention and
            the feed-forward layer.
        order: the numbers of the layers as they are computed.
    """
    parts = attention, lambda y: cross(y, memory), feed_forward
    for n in order:
        x = x + parts[n](norms[n](x))
    return x


c10.decoder_block.slip(
    "the memory goes through the norm as well",
    "Who has normalised the memory already?",
    lambda x, memory, *parts: _decode(x, parts[3][1](memory), *parts),
)
c10.decoder_block.slip(
    "cross-attention comes first",
    "In which order do the three layers come?",
    partial(_decode, order=(1, 0, 2)),
)
c10.decoder_block.slip(
    "the memory is forgotten",
    "What has the second layer to read beside the stream?",
    lambda x, memory, attention, cross, *parts: _decode(
        x, memory, attention, lambda y, m: cross(y, y), *parts
    ),
)
c10.decoder_block.slip(
    "all layers read the input of the block",
    "What does a layer read, the stream as it was or as it is?",
    lambda x, memory, attention, cross, feed_forward, norms: (
        x
        + attention(norms[0](x))
        + cross(norms[1](x), memory)
        + feed_forward(norms[2](x))
    ),
)


def _down(gradient, jacobians, *, own=1, top=0):
    """The gradient that reaches the first block.

    Args:
        gradient: of the last block's result, (d,).
        jacobians: of the layers beside the stream, (d, d) each, the last
            first.
        own: how much of the gradient the stream hands on; 1 is right.
        top: how much of the first gradient each block adds; 0 is right.
    """
    found = gradient
    for jacobian in jacobians:
        found = own * found + top * gradient + found @ jacobian
    return found


c10.stream_gradient.slip(
    "it goes from the bottom up",
    "Which layer does the gradient meet first?",
    _down,
)
c10.stream_gradient.slip(
    "the untouched path is missing",
    "What of the gradient passes by the branch?",
    lambda gradient, jacobians: _down(gradient, jacobians.flip(0), own=0),
)
c10.stream_gradient.slip(
    "the Jacobians are not transposed",
    "On which side of the Jacobian does a gradient stand?",
    lambda gradient, jacobians: _down(gradient, jacobians.flip(0).mT),
)
c10.stream_gradient.slip(
    "it goes from the bottom up, and nothing is transposed",
    "Whose way is this, the gradient's or the token's?",
    lambda gradient, jacobians: _down(gradient, jacobians.mT),
)
c10.stream_gradient.slip(
    "every branch reads the gradient of the top",
    "What reaches the second layer from the top?",
    lambda gradient, jacobians: gradient + (gradient @ jacobians).sum(0),
)
c10.stream_gradient.slip(
    "every layer passes on the gradient of the top, not its own",
    "What passes by the second layer from the top?",
    lambda gradient, jacobians: _down(
        gradient, jacobians.flip(0), own=0, top=1
    ),
)
c10.stream_gradient.slip(
    "paths through some of the branches are missing",
    "How many paths lead down past two layers?",
    lambda gradient, jacobians: (
        gradient + _down(gradient, jacobians.flip(0), own=0)
    ),
)
