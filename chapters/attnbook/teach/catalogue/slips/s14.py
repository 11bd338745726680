"""Slips of chapter 14."""

import torch

from attnbook.teach.catalogue import c14_cache as c14


def _fits(count):
    """A slip of `rows_that_fit`: `count(memory, weights, row, sizes)`, with
    the bytes of the weights and of a row."""

    def wrong(
        memory, n, *, n_layers, n_heads, n_kv_heads, d_k, capacity, size
    ):
        row = 2 * n_layers * n_kv_heads * d_k * capacity * size
        return count(memory, n * size, row, size)

    return wrong


_BYTES = "How many bytes has a number?"
c14.rows_that_fit.slip(
    "keys and values are counted once",
    "What is kept of each token, beside its key?",
    _fits(lambda memory, own, row, _: max(0, 2 * (memory - own) // row)),
)
c14.rows_that_fit.slip(
    "the number may be negative",
    "How many texts fit if not even the parameters do?",
    _fits(lambda memory, own, row, _: (memory - own) // row),
)
c14.rows_that_fit.slip(
    "a parameter is counted as one byte",
    _BYTES,
    _fits(lambda memory, own, row, b: max(0, (memory - own // b) // row)),
)
c14.rows_that_fit.slip(
    "a number of the cache is counted as one byte",
    _BYTES,
    _fits(lambda memory, own, row, b: max(0, (memory - own) * b // row)),
)
c14.rows_that_fit.slip(
    "each text has a model of its own",
    "For two texts, how often do the parameters lie in memory?",
    _fits(lambda memory, own, row, _: memory // (own + row)),
)


def _slots(*, place=None, S=None, ahead=0, padding=False):
    """A slip of `batch_mask` with other places, or another width."""

    def wrong(before, real):
        count = real.long().cumsum(-1)
        width = (S or (lambda n, c: (n + c[:, -1]).max()))(before, count)
        last = place(before, count) if place else before[:, None] + count
        mask = torch.arange(int(width)) < (last + ahead)[..., None]
        return mask if padding else mask & real[..., None]

    return wrong


_ITSELF = "In which slot does the token itself stand?"
c14.batch_mask.slip("a token does not read itself", _ITSELF, _slots(ahead=-1))
c14.batch_mask.slip(
    "a token reads one slot beyond its own", _ITSELF, _slots(ahead=1)
)
c14.batch_mask.slip(
    "padding reads too",
    "What does the row of a padding token hold?",
    _slots(padding=True),
)
c14.batch_mask.slip(
    "padding is counted as a token",
    "In which slot does the first real token of a row stand?",
    _slots(place=lambda n, c: n[:, None] + torch.arange(c.shape[1]) + 1),
)
c14.batch_mask.slip(
    "the tokens of a chunk read those that come later",
    "May the first of three new tokens read the second?",
    _slots(place=lambda n, c: (n + c[:, -1])[:, None].expand(c.shape)),
)
c14.batch_mask.slip(
    "every row is as long as the longest",
    "In your batch, does the shorter row's new token see fewer slots?",
    _slots(place=lambda n, c: n.max() + c),
)
c14.batch_mask.slip(
    "there are slots for padding",
    "How many slots does a padding token take?",
    _slots(S=lambda n, c: n.max() + c.shape[1]),
)
c14.batch_mask.slip(
    "the longest cache and the longest chunk are taken from two rows",
    "Has the row with the most in the cache the most new tokens too?",
    _slots(S=lambda n, c: n.max() + c[:, -1].max()),
)


def _rolls(slots):
    """A slip of `roll_in` with other slots for the keys that are kept."""

    def wrong(store, n_seen, new):
        C, T = len(store), len(new)
        kept = torch.arange(max(0, T - C), T)
        store = store.clone()
        store[slots(n_seen, kept, C, T) % C] = new[kept]
        return store

    return wrong


_PLACE = "In which slot does the key of position p stand?"
c14.roll_in.slip(
    "all move up and the new one comes last",
    _PLACE,
    lambda store, n_seen, new: torch.cat([store, new])[-len(store) :],
)
c14.roll_in.slip(
    "the slots are counted from the first key that is kept",
    "Which position has the first of the keys that are kept?",
    _rolls(lambda n, kept, C, T: n + kept - kept[0]),
)
c14.roll_in.slip(
    "a long chunk lies in its own order",
    _PLACE,
    _rolls(lambda n, kept, C, T: n * (T < C) + kept - kept[0]),
)


def _flops(without=None, cached=None):
    """A slip of `writing_flops`: the calls, (T, S) each, of either way."""

    def total(calls, per_token, per_pair):
        return int(sum(T * per_token + T * S * per_pair for T, S in calls))

    def wrong(p, n, per_token, per_pair):
        again = [(S, S) for S in range(p, p + n)]
        kept = [(p, p)] + [(1, S) for S in range(p + 1, p + n)]
        return (
            total(without(p, n) if without else again, per_token, per_pair),
            total(cached(p, n) if cached else kept, per_token, per_pair),
        )

    return wrong


_QUERIES = "How many queries has a step with the cache, and how many keys?"
c14.writing_flops.slip(
    "the prompt is never read",
    "What has to be read before the first new token?",
    _flops(cached=lambda p, n: [(1, S) for S in range(p + 1, p + n)]),
)
c14.writing_flops.slip(
    "the last token that is written is read",
    "After which token does the writing end?",
    _flops(
        lambda p, n: [(S, S) for S in range(p, p + n + 1)],
        lambda p, n: [(p, p)] + [(1, p + i) for i in range(1, n + 1)],
    ),
)
c14.writing_flops.slip(
    "with the cache there is a step too many",
    "What do you know once the prompt has been read?",
    _flops(cached=lambda p, n: [(p, p)] + [(1, p + i + 1) for i in range(n)]),
)
c14.writing_flops.slip(
    "without a cache the first reading has a token too many",
    "How many tokens are there when the first new one is asked for?",
    _flops(lambda p, n: [(S, S) for S in range(p + 1, p + n + 1)]),
)
c14.writing_flops.slip(
    "a new token does not read itself",
    _QUERIES,
    _flops(cached=lambda p, n: [(p, p)] + [(1, p + i) for i in range(n - 1)]),
)
c14.writing_flops.slip(
    "masked pairs are left out",
    "Does T · S leave out what the mask hides?",
    _flops(
        lambda p, n: [(S, (S + 1) / 2) for S in range(p, p + n)],
        lambda p, n: (
            [(p, (p + 1) / 2)] + [(1, S) for S in range(p + 1, p + n)]
        ),
    ),
)
