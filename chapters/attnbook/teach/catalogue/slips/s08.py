"""Slips of chapter 8."""

from functools import partial

import torch
import torch.nn.functional as F

from attnbook.teach.catalogue import c08_feed_forward as c08


def _silent(x, w_up, b_up):
    """Where a unit gives 0: (tokens, units), boolean."""
    return (x @ w_up + b_up).flatten(0, -2) <= 0


c08.dead_units.slip(
    "it counts the living",
    "Of which units does the exercise ask the number?",
    lambda x, w, b: int((~_silent(x, w, b)).any(0).sum()),
)
c08.dead_units.slip(
    "a unit that is silent once counts as dead",
    "For how many tokens must a dead unit be silent?",
    lambda x, w, b: int(_silent(x, w, b).any(0).sum()),
)
c08.dead_units.slip(
    "a unit at exactly 0 counts as alive",
    "What does ReLU add, and what slope has it, at 0?",
    lambda x, w, b: int((x @ w + b < 0).flatten(0, -2).all(0).sum()),
)


def _dead_units_by_count(count):
    """A slip of `dead_units`: `count` counts in the table of silent units."""
    return lambda x, w, b: int(count(x @ w + b <= 0))


c08.dead_units.slip(
    "one axis of tokens is looked at, the first",
    "Which axes of x hold tokens?",
    _dead_units_by_count(lambda silent: silent.all(0).sum()),
)
c08.dead_units.slip(
    "one axis of tokens is looked at, the last",
    "Which axes of x hold tokens?",
    _dead_units_by_count(lambda silent: silent.all(-2).sum()),
)
c08.dead_units.slip(
    "it counts silent answers, a unit more than once",
    "How often may one unit be counted?",
    _dead_units_by_count(lambda silent: silent.sum()),
)
c08.dead_units.slip(
    "it counts tokens",
    "Along which axis do the units stand?",
    _dead_units_by_count(lambda silent: silent.all(-1).sum()),
)
c08.dead_units.slip(
    "a unit's answers are added up before they meet 0",
    "A unit answers −3 to one token and 1 to another. Is it dead?",
    lambda x, w, b: int(((x @ w + b).flatten(0, -2).sum(0) <= 0).sum()),
)
c08.gated_width.slip(
    "it is one multiple more even where the width fits",
    "What if 8/3 of d_model is a multiple already?",
    lambda d, multiple: multiple * (8 * d // 3 // multiple + 1),
)
c08.gated_width.slip(
    "it is rounded down",
    "May the width lie below 8/3 of d_model?",
    lambda d, multiple: multiple * (8 * d // (3 * multiple)),
)
c08.gated_width.slip(
    "it is rounded to the nearest multiple",
    "May the width lie below 8/3 of d_model?",
    lambda d, multiple: multiple * round(8 * d / 3 / multiple),
)
c08.gated_width.slip(
    "the fraction is cut off before the multiple is looked for",
    "What is 8/3 of 4, and what is the next whole number?",
    lambda d, multiple: multiple * -(-int(8 * d / 3) // multiple),
)


def _silu_slope(gate, s):
    """The derivative of SiLU, from x and its sigmoid."""
    return s * (1 + gate * (1 - s))


def _gate(gate, up, gradient, slope=_silu_slope):
    """The gradients of silu(gate) · up with respect to gate and up, with
    `slope` in place of the derivative of SiLU."""
    slopes = slope(gate, torch.sigmoid(gate))
    return gradient * up * slopes, gradient * F.silu(gate)


c08.gate_backward.slip(
    "the slope is that of the sigmoid",
    "What is silu, and what does the product rule say of it?",
    partial(_gate, slope=lambda gate, s: s * (1 - s)),
)
c08.gate_backward.slip(
    "the second half of the product rule is missing",
    "silu is a product too. How many terms has its slope?",
    partial(_gate, slope=lambda gate, s: s),
)
c08.gate_backward.slip(
    "the second term of the slope lacks a factor",
    "What is the slope of the sigmoid?",
    partial(_gate, slope=lambda gate, s: s + gate * (1 - s)),
)
c08.gate_backward.slip(
    "the slope of the sigmoid has a wrong sign",
    "How steep is the sigmoid where it is nearly 1?",
    partial(_gate, slope=lambda gate, s: s * (1 + gate * (1 + s))),
)
c08.gate_backward.slip(
    "silu stands where its slope should",
    "silu(0) is 0. Is its curve flat there?",
    partial(_gate, slope=lambda gate, s: gate * s),
)


def _gate_backward_by_bent(bent):
    """A slip of `gate_backward`: up's gradient is multiplied by
    `bent(gate)`."""
    return lambda gate, up, g: (
        (
            _gate(gate, up, g)[0],
            g * bent(gate),
        )
    )


c08.gate_backward.slip(
    "up meets the gate unbent",
    "By what is up multiplied on the way forwards?",
    _gate_backward_by_bent(lambda gate: gate),
)
c08.gate_backward.slip(
    "up meets the sigmoid alone",
    "By what is up multiplied on the way forwards?",
    _gate_backward_by_bent(torch.sigmoid),
)
c08.gate_backward.slip(
    "the two gradients have changed places",
    "Which of the two comes first?",
    lambda gate, up, g: _gate(gate, up, g)[::-1],
)
c08.gate_backward.slip(
    "up is bent in place of the gate",
    "Which of the two goes through silu?",
    lambda gate, up, g: _gate(up, gate, g)[::-1],
)
c08.gate_backward.slip(
    "up is missing from the gradient of the gate",
    "By what is the gate multiplied?",
    lambda gate, up, g: _gate(gate, torch.ones_like(up), g),
)


def _sliced(x, w_up, b_up, w_down, size, total, end=None, act=F.gelu):
    """A feed-forward layer whose units are computed `size` at a time.

    Args:
        total: what the sum over slices begins with; the bias is right.
        end: the unit before which it stops; the last is included by default.
        act: the activation.
    """
    end = len(b_up) if end is None else end
    for start in range(0, end, size):
        part = slice(start, start + size)
        total = total + act(x @ w_up[:, part] + b_up[part]) @ w_down[part]
    return total


c08.feed_forward_in_slices.slip(
    "the units of the last, smaller slice are lost",
    "What is left over when 12 units are cut by fives?",
    lambda x, w_up, b_up, w_down, b_down, size: _sliced(
        x, w_up, b_up, w_down, size, b_down, len(b_up) // size * size
    ),
)
c08.feed_forward_in_slices.slip(
    "the second bias is missing",
    "Set all weights to zero. What should come out?",
    lambda x, w_up, b_up, w_down, b_down, size: _sliced(
        x, w_up, b_up, w_down, size, torch.zeros_like(b_down)
    ),
)


def _feed_forward_in_slices_by_act(act):
    """A slip of `feed_forward_in_slices`: the activation is another one."""
    return lambda x, w_up, b_up, w_down, b_down, size: _sliced(
        x, w_up, b_up, w_down, size, b_down, act=act
    )


c08.feed_forward_in_slices.slip(
    "nothing bends",
    "What are two matrices in a row, with no bend between them?",
    _feed_forward_in_slices_by_act(lambda inner: inner),
)
c08.feed_forward_in_slices.slip(
    "it bends by GELU's second formula",
    "Which of the two formulas is the exact one?",
    _feed_forward_in_slices_by_act(partial(F.gelu, approximate="tanh")),
)
c08.feed_forward_in_slices.slip(
    "it bends by ReLU",
    "What does GELU make of −1?",
    _feed_forward_in_slices_by_act(F.relu),
)
c08.feed_forward_in_slices.slip(
    "it bends at the end",
    "Where does the layer bend, before the second matrix or after it?",
    lambda x, w_up, b_up, w_down, b_down, size: F.gelu(
        _sliced(x, w_up, b_up, w_down, size, b_down, act=lambda inner: inner)
    ),
)
