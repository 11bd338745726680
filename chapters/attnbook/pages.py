"""Pages: memory for keys and values, lent in small pieces and shared.

A page has room for s tokens. A request has a *table*, its pages in order:
position p stands in page `table[p // s]`, at offset `p % s`.

Axis names: L layers, P pages, H heads, H_kv heads of keys and values, N new
tokens of all requests, T of one, S keys of one.
Source: Kwon et al. (2023), arXiv:2309.06180.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from itertools import takewhile
from typing import Any, NamedTuple

import torch
from torch import Tensor

from attnbook.attention import attend, merge_heads
from attnbook.config import check_sizes
from attnbook.gpt import GPT
from attnbook.positions import alibi_bias


def page_names(tokens: Sequence[int], size: int) -> list[bytes]:
    """A name for each full page: of its tokens and all that stand before.

    Each is made from the one before it: the same tokens behind another
    beginning have other keys and values.
    """
    names, name = [], b""
    for end in range(size, len(tokens) + 1, size):
        text = str(list(tokens[end - size : end])).encode()
        name = hashlib.sha256(name + text).digest()
        names.append(name)
    return names


class Pages:
    """The pool: who holds which page, and which is taken next.

    Shapes: keys, values (L, P, s, H_kv, d_k).
    """

    def __init__(self, n_pages: int, size: int, model: GPT) -> None:
        check_sizes(n_pages=n_pages, page_size=size)
        cache = model.new_cache(n_pages, size)  # (L, P, H_kv, s, d_k)
        self.keys = cache.keys.transpose(2, 3).contiguous()
        self.values = cache.values.transpose(2, 3).contiguous()
        self.size = size
        #: How many tables each page stands in.
        self.holders = [0] * n_pages
        #: Pages in no table, the one to be taken next first.
        self.free = OrderedDict.fromkeys(range(n_pages))
        #: Full pages that can be found again, and their names.
        self.page_of: dict[bytes, int] = {}
        self.name_of: dict[int, bytes] = {}

    def pages_for(self, n_tokens: int) -> int:
        """How many pages so many tokens need."""
        return -(-n_tokens // self.size)

    def reserve(self, table: list[int], start: int, end: int) -> bool:
        """Make positions start to end of a table its own to write; or return
        False, and change nothing, if there are not enough free pages.

        A page that another table holds too is copied before it is written.
        """
        old = start // self.size  # the page written on, if there is one
        shared = old < len(table) and self.holders[table[old]] > 1
        missing = self.pages_for(end) - len(table)
        if missing + shared > len(self.free):
            return False
        if shared:
            page = self._take()
            for memory in (self.keys, self.values):
                memory[:, page] = memory[:, table[old]]
            self.holders[table[old]] -= 1
            table[old] = page
        elif old < len(table):  # its tokens are about to change
            self._forget(table[old])
        table += [self._take() for _ in range(missing)]
        return True

    def share(self, pages: Sequence[int]) -> list[int]:
        """One more table of these pages."""
        for page in pages:
            self.holders[page] += 1
            self.free.pop(page, None)
        return list(pages)

    def cut(self, table: list[int], n_tokens: int) -> None:
        """Give back the pages behind the first n_tokens, the last one first:
        so the end of a text is lost before its beginning."""
        while len(table) > self.pages_for(n_tokens):
            page = table.pop()
            self.holders[page] -= 1
            if self.holders[page] == 0:
                self.free[page] = None
                # What nobody can find is taken first.
                self.free.move_to_end(page, last=page in self.name_of)

    def remember(self, table: Sequence[int], names: Sequence[bytes]) -> None:
        """Let the first pages of a table, which are full, be found."""
        for page, name in zip(table, names):
            if name not in self.page_of and page not in self.name_of:
                self.page_of[name], self.name_of[page] = page, name

    def find(self, names: Sequence[bytes]) -> list[int]:
        """The pages of the longest known beginning."""
        known = takewhile(self.page_of.__contains__, names)
        return [self.page_of[name] for name in known]

    def _take(self):
        page, _ = self.free.popitem(last=False)
        self._forget(page)
        self.holders[page] = 1
        return page

    def _forget(self, page):
        if page in self.name_of:
            del self.page_of[self.name_of.pop(page)]


class Part(NamedTuple):
    """What a request brings to a step: new tokens from position `start` on;
    after the last `n_logits` of them it wants logits."""

    table: Sequence[int]
    start: int
    tokens: Sequence[int]
    n_logits: int = 1


@torch.inference_mode()
def read_parts(
    model: GPT, pages: Pages, parts: Sequence[Part], exact: bool = False
) -> list[Tensor]:
    """Read the new tokens of all parts in one pass: logits (n, V) a part.

    The products with the model's matrices are common to all; attention is
    each part's own, over its pages, which must be reserved. With `exact`,
    each token is multiplied, and attends, by itself: no bit of a result
    depends on what stands beside it.
    """
    s, put = pages.size, partial(torch.tensor, device=pages.keys.device)
    ones = [
        Part(part.table, part.start + n, [token])
        for part in parts
        for n, token in enumerate(part.tokens)
    ]
    tokens = put([one.tokens[0] for one in ones])  # (N,), as the next two
    positions = put([one.start for one in ones])
    slots = put([p.table[p.start // s] * s + p.start % s for p in ones])
    n, mask = 1 if exact else len(ones), None
    if model.config.positions == "alibi":
        keys = torch.arange(int(positions.max()) + 1).to(positions)
        bias = alibi_bias(model.config.n_heads, positions, keys)
        mask = bias.masked_fill(bias > 0, -torch.inf)  # (H, N, S)
    views, kept, first = [], [], 0
    for part in ones if exact else parts:
        rows = slice(first, first := first + len(part.tokens))
        S = part.start + len(part.tokens)
        kept += [part.table[p // s] * s + p % s for p in range(S)]
        seen = None if mask is None else mask[:, rows, :S]  # (H, T, S)
        views.append((rows, S, seen))
    places = put(kept)  # the slots of all keys, part by part: (Σ S,)
    x = model.embed(tokens, positions)  # (N, d_model)
    for block, *memory in zip(model.blocks, pages.keys, pages.values):
        add: Any = block.add
        here = block.attention, memory, slots, places, views, n
        attention = partial(_attention, *here, positions)
        x = add(x, attention, block.attention_norm)
        feed_forward: Any = block.feed_forward
        feed_forward = partial(in_pieces, feed_forward, n)
        x = add(x, feed_forward, block.feed_forward_norm)
    each = x.split([len(part.tokens) for part in parts])
    x = torch.cat([a[len(a) - p.n_logits :] for a, p in zip(each, parts)])
    logits = in_pieces(model.unembed, n, x) if len(x) else x
    return list(logits.split([part.n_logits for part in parts]))


def in_pieces(layer: Callable, n: int, x: Tensor) -> Tensor:
    """A layer's results for n rows at a time: (N, …) → (N, …)."""
    # Copies, so that each begins at an address as round as the others': the
    # order in which a product is summed may hang on it.
    return torch.cat([layer(piece.clone()) for piece in x.split(n)])


def _attention(layer, memory, slots, places, views, n, positions, x):
    """`MultiHeadAttention` over pages: (N, d_model) → (N, d_model)."""
    pieces = [
        layer.project(piece.clone(), positions=at)
        for piece, at in zip(x.split(n), positions.split(n))
    ]
    q, *new = (torch.cat(each, -2) for each in zip(*pieces))  # (H, N, d_k)
    kept = []
    for old, x in zip(memory, new):  # keys, and then values
        old.flatten(0, 1)[slots] = x.transpose(0, 1)
        x = old.flatten(0, 1)[places]  # (Σ S, H_kv, d_k)
        kept.append(x.split([S for _, S, _ in views]))
    contexts = []
    for (rows, _, mask), *both in zip(views, *kept):
        # As in `in_pieces`: a copy begins at a round address.
        both = [x.clone() if n == 1 else x for x in both]
        k, v = (x.transpose(0, 1)[None] for x in both)  # (1, H_kv, S, d_k)
        mine = q[None, :, rows].contiguous()  # (1, H, T, d_k)
        contexts.append(attend(mine, k, v, mask=mask, causal=mask is None)[0])
    return in_pieces(layer.out, n, merge_heads(torch.cat(contexts, -2)))
