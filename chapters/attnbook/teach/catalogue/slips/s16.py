"""Slips of chapter 16."""

import math

import torch

from attnbook.layers import TransformerBlock
from attnbook.teach.catalogue import c16_real_model as c16


def _miscounted(off):
    """A slip by off(V, d, L, keys), keys the width of a token's keys."""

    def wrong(V, d, d_ff, L, H, H_kv):
        right = c16.llama_parameters(V, d, d_ff, L, H, H_kv)
        return right + off(V, d, L, d // H * H_kv)

    return wrong


_NORMS = "How many norms has a block, and what does one of them learn?"
c16.llama_parameters.slip(
    "the head is counted as tied",
    "How many tables of the vocabulary's size are there?",
    _miscounted(lambda V, d, L, keys: -V * d),
)
c16.llama_parameters.slip(
    "the last norm is missing",
    "What does the stream go through before the head?",
    _miscounted(lambda V, d, L, keys: -d),
)
c16.llama_parameters.slip(
    "the norms are missing",
    _NORMS,
    _miscounted(lambda V, d, L, keys: -d * (2 * L + 1)),
)
c16.llama_parameters.slip(
    "a block has one norm only",
    _NORMS,
    _miscounted(lambda V, d, L, keys: -d * L),
)
c16.llama_parameters.slip(
    "the norms are counted with biases",
    _NORMS,
    _miscounted(lambda V, d, L, keys: d * (2 * L + 1)),
)
c16.llama_parameters.slip(
    "the matrix of attention's output is missing",
    "What do the heads' contexts go through, side by side?",
    _miscounted(lambda V, d, L, keys: -L * d * d),
)
c16.llama_parameters.slip(
    "of keys and values only one is counted",
    "Which matrices has attention?",
    _miscounted(lambda V, d, L, keys: -L * d * keys),
)
c16.llama_parameters.slip(
    "the width of keys and values is d_model / n_kv_heads",
    "How wide is one head, and how many of them do the keys have?",
    lambda V, d, d_ff, L, H, H_kv: c16._count(
        V, d, d_ff, L, shared=d // H_kv, matrices=3
    ),
)
c16.llama_parameters.slip(
    "biases are counted",
    "Which of a Llama's matrices have a bias?",
    lambda V, d, d_ff, L, H, H_kv: (
        c16.llama_parameters(V, d, d_ff, L, H, H_kv)
        + L * (3 * d + 2 * (d // H * H_kv) + 2 * d_ff)
    ),
)
c16.to_c_attn.slip(
    "keys and values come before the queries",
    "What comes first in GPT-2's joint matrix?",
    lambda query, key_value: torch.cat([key_value, query]).T,
)
c16.to_c_attn.slip(
    "values come before keys",
    "What comes second in GPT-2's joint matrix?",
    lambda query, key_value: torch.cat([query, *key_value.chunk(2)[::-1]]).T,
)
c16.stack_key_value.slip(
    "values come before keys",
    "What comes first in our key_value?",
    lambda k, v, n: c16.stack_key_value(k, v, n).roll(len(k), 0),
)
c16.stack_key_value.slip(
    "the values are reordered, not the keys",
    "What is rotated, and what is not?",
    lambda k, v, n: c16.stack_key_value(v, k, n).roll(len(k), 0),
)
c16.stack_key_value.slip(
    "keys and values lie head by head",
    "In which rows do all values stand?",
    lambda k, v, n: (
        c16.stack_key_value(k, v, n)
        .unflatten(0, (2, n, -1))
        .transpose(0, 1)
        .flatten(0, 2)
    ),
)
c16.stack_key_value.slip(
    "in each head the odd rows come first",
    "Which of the halves has row 0?",
    lambda k, v, n: c16.stack_key_value(
        k.unflatten(0, (-1, 2)).flip(1).flatten(0, 1), v, n
    ),
)
c16.stack_key_value.slip(
    "the rows are reordered the other way round",
    "Where does row 1 of a head stand, before and after?",
    lambda k, v, n: torch.cat(
        [k.unflatten(0, (n, 2, -1)).transpose(1, 2).flatten(0, 2), v]
    ),
)
c16.stack_key_value.slip(
    "rows move from head to head",
    "In which rows does the second head stand, before and after?",
    lambda k, v, n: torch.cat([k[0::2], k[1::2], v]),
)
c16.find_first.slip(
    "the names are sorted",
    "In which order did the parts run?",
    lambda ours, theirs, bound: c16.find_first(
        dict(sorted(ours.items())), theirs, bound
    ),
)
c16.find_first.slip(
    "what lies just at the bound is named",
    "Is a number that is just the bound away further than it?",
    lambda ours, theirs, bound: c16.find_first(
        ours, theirs, math.nextafter(bound, 0)
    ),
)

c16.find_first.slip(
    "the last is named",
    "When does the search end?",
    lambda a, b, bound: c16.find_first(dict(reversed(a.items())), b, bound),
)
c16.find_first.slip(
    "tensors are paired by their places",
    "Which of the reference's tensors belongs to one of ours?",
    lambda a, b, bound: c16.find_first(a, dict(zip(a, b.values())), bound),
)
c16.find_first.slip(
    "it goes through the names in another order than ours ran",
    "In whose order did our parts run?",
    lambda a, b, bound: c16.find_first({n: a[n] for n in b}, b, bound),
)


def _first_of(near):
    """A slip that names the first tensor that is not near."""

    def wrong(ours, theirs, bound):
        names = (n for n in ours if not near(ours[n], theirs[n], bound))
        return next(names, None)

    return wrong


c16.find_first.slip(
    "the mean difference is compared",
    "Can one wrong number hide among many right ones?",
    _first_of(lambda a, b, bound: (a - b).abs().mean() <= bound),
)
c16.find_first.slip(
    "a difference below 0 passes",
    "How far from each other are 1 and 3?",
    _first_of(lambda a, b, bound: (a - b <= bound).all()),
)
c16.find_first.slip(
    "large numbers may differ by more",
    "Which rtol has torch.allclose if none is given?",
    _first_of(lambda a, b, bound: torch.allclose(a, b, atol=bound)),
)
c16.find_first.slip(
    "a NaN on both sides passes",
    "Is a NaN near to another one?",
    _first_of(
        lambda a, b, bound: torch.allclose(a, b, 0, bound, equal_nan=True)
    ),
)
c16.find_first.slip(
    "one number that is near is enough",
    "Should all numbers be far, or any?",
    _first_of(lambda a, b, bound: ~((a - b).abs() > bound).all()),
)


def _compared(compare, of=lambda part: True):
    """A slip that judges only what parts of a kind give."""

    def wrong(ours, theirs, tokens):
        found, reference = (c16._outputs(m, tokens) for m in (ours, theirs))
        kept = {n for n, part in ours.named_modules() if of(part)}
        found = {n: x for n, x in found.items() if n in kept}
        return compare(found, reference, 1e-9)

    return wrong


c16.first_wrong.slip(
    "only the parts without parts of their own are compared",
    "Where is the result of an addition to be seen?",
    _compared(c16.find_first, lambda part: not [*part.children()]),
)
c16.first_wrong.slip(
    "blocks alone are compared",
    "Which part of a block is it?",
    _compared(c16.find_first, lambda part: isinstance(part, TransformerBlock)),
)
c16.first_wrong.slip(
    "small differences pass",
    "Which rtol has torch.allclose if none is given?",
    _compared(
        lambda ours, theirs, bound: next(
            (n for n in ours if not torch.allclose(ours[n], theirs[n])), None
        )
    ),
)
c16.first_wrong.slip(
    "the largest difference is named",
    "Is the part with the largest difference the one where it began?",
    _compared(c16.names_the_largest),
)
c16.first_wrong.slip(
    "the last part is named, or none",
    "Under how many names do your hooks keep what they are given?",
    _compared(
        lambda ours, theirs, bound: c16.find_first(
            {n: ours[n] for n in [*ours][-1:]}, theirs, bound
        )
    ),
)
c16.first_wrong.slip(
    "the whole model comes before its parts",
    "When has the whole model its result?",
    lambda ours, theirs, tokens: c16.find_first(
        {"": ours(tokens)}, {"": theirs(tokens)}, 1e-9
    ),
)
