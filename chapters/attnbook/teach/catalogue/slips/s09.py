"""Slips of chapter 9."""

from functools import partial

import torch
import torch.nn.functional as F

from attnbook.teach.catalogue import c09_positions as c09

c09.rotate_some.slip(
    "all components are turned",
    "Which components stay as they are?",
    lambda x, positions, width: c09.rotate(x, positions),
)
c09.rotate_some.slip(
    "the part is cut out of a whole head that was turned",
    "How wide is the head whose pairs you turn?",
    lambda x, positions, width: torch.cat(
        [c09.rotate(x, positions)[..., :width], x[..., width:]], -1
    ),
)


def _angles(positions, width, shrink, base=1.0):
    """The angles (T, width/2) of rotary positions, times `shrink`, and with
    `base` times the usual base."""
    return shrink * c09.rotary_angles(positions, width, base=10_000.0 * base)


c09.interpolated_angles.slip(
    "the positions are stretched",
    "Shall the last angle wanted lie inside those trained, or outside?",
    lambda p, w, trained, wanted: _angles(p, w, max(1.0, wanted / trained)),
)
c09.interpolated_angles.slip(
    "a shorter text is stretched",
    "What shall become of a text that is shorter than trained?",
    lambda p, w, trained, wanted: _angles(p, w, trained / wanted),
)
c09.interpolated_angles.slip(
    "the base is stretched, not the positions",
    "By what shall every angle be multiplied, the fastest too?",
    lambda p, w, trained, wanted: _angles(
        p, w, 1.0, max(1.0, wanted / trained)
    ),
)
c09.interpolated_angles.slip(
    "the shorter text is stretched, the longer one left",
    "Which is smaller for a longer text, 1 or trained/wanted?",
    lambda p, w, trained, wanted: _angles(p, w, max(1.0, trained / wanted)),
)
c09.to_half_layout.slip(
    "it is the way back",
    "Where does row 1 of a head stand, before and after?",
    lambda weight, n_heads: (
        weight.unflatten(0, (n_heads, 2, -1)).transpose(1, 2).flatten(0, 2)
    ),
)
c09.to_half_layout.slip(
    "the columns are reordered",
    "Which axis of W_q counts the components of a query?",
    lambda weight, n_heads: torch.cat([weight[:, 0::2], weight[:, 1::2]], 1),
)
c09.to_half_layout.slip(
    "nothing has moved",
    "Which two axes have to trade places before the rows are put together?",
    lambda weight, n_heads: weight.clone(),
)


def _attend(q, k, v, positions, turn=c09.rotate, **options):
    """Attention with rotary positions; `turn` turns queries and keys."""
    q, k = (turn(x, positions[..., None, :]) for x in (q, k))
    return F.scaled_dot_product_attention(q, k, v, **options)


def _rotate_some_by_turn(turn):
    """A slip of `rotate_some`: `turn` turns the first `width` components."""
    return lambda x, positions, width: torch.cat(
        [turn(x[..., :width], positions), x[..., width:]], -1
    )


c09.rotary_attention.slip(
    "neighbours are taken for pairs",
    "Which component makes a pair with component 0?",
    partial(_attend, turn=c09.takes_neighbours_for_pairs),
)
c09.rotate_some.slip(
    "neighbours are taken for pairs",
    "Which component makes a pair with component 0?",
    _rotate_some_by_turn(c09.takes_neighbours_for_pairs),
)
c09.rotary_attention.slip(
    "it turns the other way",
    "Where does R(θ) take the arrow (1, 0)?",
    partial(_attend, turn=lambda x, positions: c09.rotate(x, -positions)),
)
c09.rotate_some.slip(
    "it turns the other way",
    "Where does R(θ) take the arrow (1, 0)?",
    _rotate_some_by_turn(lambda x, positions: c09.rotate(x, -positions)),
)
c09.rotary_attention.slip(
    "the positions are counted from 0 again",
    "What changes in your result if the positions are others?",
    partial(
        _attend,
        turn=lambda x, positions: c09.rotate(
            x, torch.arange(x.shape[-2], device=x.device)
        ),
    ),
)
c09.rotate_some.slip(
    "the positions are counted from 0 again",
    "What changes in your result if the positions are others?",
    _rotate_some_by_turn(
        lambda x, positions: c09.rotate(
            x, torch.arange(x.shape[-2], device=x.device)
        )
    ),
)
c09.rotary_attention.slip(
    "the exponent is half of what it should be",
    "What is the speed of the last pair of width 8?",
    partial(
        _attend,
        turn=lambda x, positions: c09.rotate(x, positions, 10_000**0.5),
    ),
)
c09.rotate_some.slip(
    "the exponent is half of what it should be",
    "What is the speed of the last pair of width 8?",
    _rotate_some_by_turn(
        lambda x, positions: c09.rotate(x, positions, 10_000**0.5)
    ),
)
c09.rotary_attention.slip(
    "later tokens are hidden",
    "Is a mask asked for?",
    partial(_attend, is_causal=True),
)
c09.rotary_attention.slip(
    "the scale is left out",
    "What are the scores divided by?",
    lambda q, k, v, positions: c09.rotary_attention(
        q * q.shape[-1] ** 0.5, k, v, positions
    ),
)
c09.rotary_attention.slip(
    "the keys are not turned",
    "On what does the score depend if only the query is turned?",
    lambda q, k, v, positions: F.scaled_dot_product_attention(
        c09.rotate(q, positions[..., None, :]), k, v
    ),
)
