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

    Shapes: memory (L, 2, P, s, H_kv, d_k), keys and values of each layer.
    """

    def __init__(self, n_pages: int, size: int, model: GPT) -> None:
        check_sizes(n_pages=n_pages, page_size=size)
        cache = model.new_cache(n_pages, size)
        both = torch.stack([cache.keys, cache.values], 1)
        self.memory = both.transpose(3, 4).contiguous()
        self.size = size
        #: How many tables each page stands in.
        self.holders = [0] * n_pages
        #: Pages in no table, the one to be taken next first.
        self.free = OrderedDict.fromkeys(range(n_pages))
        #: Full pages that can be found again, and their names.
        self.page_of: dict[bytes, int] = {}
        self.name_of: dict[int, bytes] = {}

    def reserve(self, table: list[int], start: int, end: int) -> bool:
        """Make positions start to end of a table its own to write; or return
        False, and change nothing, if there are not enough free pages.

        A page that another table holds too is copied before it is written.
        """
        old = start // self.size  # the page written on, if there is one
        shared = old < len(table) and self.holders[table[old]] > 1
        missing = -(-end // self.size) - len(table)  # rounded up
        if missing + shared > len(self.free):
            return False
        if shared:
            page = self._take()
            self.memory[:, :, page] = self.memory[:, :, table[old]]
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
        while (len(table) - 1) * self.size >= n_tokens:
            page = table.pop()
            self.holders[page] -= 1
            if self.holders[page] == 0:
                self.free[page] = None
                # What nobody can find is taken first.
                self.free.move_to_end(page, last=page in self.name_of)

    def remember(self, table: Sequence[int], tokens: Sequence[int]) -> None:
        """Let the full pages of a table be found by what stands on them."""
        for page, name in zip(table, page_names(tokens, self.size)):
            if name not in self.page_of and page not in self.name_of:
                self.page_of[name], self.name_of[page] = page, name

    def find(self, tokens: Sequence[int]) -> list[int]:
        """The pages of the longest known beginning of a text."""
        names = page_names(tokens, self.size)
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
    s, put = pages.size, partial(torch.tensor, device=pages.memory.device)
    ones = [
        Part(part.table, part.start + n, [token])
        for part in parts
        for n, token in enumerate(part.tokens)
    ]
    tokens = put([one.tokens[0] for one in ones])  # (N,), as positions
    positions = put([one.start for one in ones])
    n, readers = (1, ones) if exact else (len(ones), parts)
    sizes = [len(part.tokens) for part in readers]
    kept = [  # the slots of all that a reader sees, its own last: (S,) each
        put([r.table[p // s] * s + p % s for p in range(r.start + size)])
        for r, size in zip(readers, sizes)
    ]
    masks: list[Tensor | None] = [None] * len(readers)
    if model.config.positions == "alibi":
        keys = torch.arange(max(map(len, kept))).to(positions)
        bias = alibi_bias(model.config.n_heads, positions, keys)
        bias = bias.masked_fill(bias > 0, -torch.inf)  # (H, N, S)
        each = zip(bias.split(sizes, 1), kept)
        masks = [mask[..., : len(slots)] for mask, slots in each]
    plan = positions, sizes, kept, masks
    x = model.embed(tokens, positions)  # (N, d_model)
    blocks: Any = model.blocks
    for block, memory in zip(blocks, pages.memory.flatten(2, 3)):
        attention = partial(_attention, block.attention, memory, n, plan)
        feed_forward = partial(in_pieces, block.feed_forward, n)
        x = block.add(x, attention, block.attention_norm)
        x = block.add(x, feed_forward, block.feed_forward_norm)
    each = x.split([len(part.tokens) for part in parts])
    x = torch.cat([a[len(a) - p.n_logits :] for a, p in zip(each, parts)])
    logits = in_pieces(model.unembed, n, x) if len(x) else x
    return list(logits.split([part.n_logits for part in parts]))


def in_pieces(layer: Callable, n: int, x: Tensor) -> Tensor:
    """A layer's results for n rows at a time: (N, …) → (N, …)."""
    # Copies, so that each begins at an address as round as the others': the
    # order in which a product is summed may hang on it.
    return torch.cat([layer(piece.clone()) for piece in x.split(n)])


def _attention(layer, memory, n, plan, x):
    """`MultiHeadAttention` over pages: (N, d_model) → (N, d_model)."""
    positions, sizes, kept, masks = plan
    pieces = zip(x.split(n), positions.split(n))
    made = [layer.project(x.clone(), positions=at) for x, at in pieces]
    q, k, v = (torch.cat(each, -2) for each in zip(*made))  # (H, N, d_k)
    own = torch.cat([slots[-n:] for slots, n in zip(kept, sizes)])  # (N,)
    memory[:, own] = torch.stack([k, v]).transpose(1, 2)
    contexts = []
    for asks, slots, mask in zip(q.split(sizes, 1), kept, masks):
        # Copies, too: keys and values begin at a round address.
        k, v = (x[slots].transpose(0, 1)[None] for x in memory)
        q = asks[None].contiguous()  # (1, H, T, d_k)
        contexts.append(attend(q, k, v, mask=mask, causal=mask is None)[0])
    return in_pieces(layer.out, n, merge_heads(torch.cat(contexts, -2)))
