"""Pages: memory for keys and values, lent in small pieces and shared.

A page has room for s tokens. A request has a *table*, its pages in order:
position p stands in page `table[p // s]`, at offset `p % s`.

Axis names: L layers, P pages, H heads, H_kv heads of keys and values, N new
tokens of all requests, T of one, S keys of one.
Source: Kwon et al. (2023), arXiv:2309.06180.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from functools import partial
from itertools import takewhile
from typing import NamedTuple

import torch
from torch import Tensor

from attnbook.attention import attend, merge_heads
from attnbook.gpt import GPT
from attnbook.positions import alibi_bias
from attnbook.values import check_sizes


def page_names(tokens: Sequence[int], size: int) -> list[bytes]:
    """A name for each full page: of its tokens and all that stand before.

    Each is made from the one before it: the same tokens behind another
    beginning have other keys and values.
    """
    names = [b""]
    for end in range(size, len(tokens) + 1, size):
        text = str(list(tokens[end - size : end])).encode()
        names.append(hashlib.sha256(names[-1] + text).digest())
    return names[1:]


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
            self.page_of.pop(self.name_of.pop(table[old], b""), None)
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
        self.page_of.pop(self.name_of.pop(page, b""), None)
        self.holders[page] = 1
        return page


class Part(NamedTuple):
    """What a request brings to a step: new tokens from position `start` on;
    after the last `n_logits` of them, at least one, it wants logits."""

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
    each token is multiplied by itself: no bit depends on its company.
    """
    device, s, views = pages.memory.device, pages.size, []
    for table, start, tokens, _ in parts:
        size = 1 if exact else len(tokens)
        for first in range(start, start + len(tokens), size):
            keys = torch.arange(first + size, device=device)  # (S,)
            slots = keys.new_tensor(table)[keys // s] * s + keys % s
            own, mask = keys[first:], None
            if model.config.positions == "alibi":
                bias = alibi_bias(model.config.n_heads, own, keys)
                mask = bias.masked_fill(bias > 0, -torch.inf)  # (H, T, S)
            views.append((own, slots[first:], slots, mask))
    positions = torch.cat([own for own, *_ in views])  # (N,)
    new = positions.new_tensor([t for part in parts for t in part.tokens])
    n = 1 if exact else len(new)  # rows that are multiplied at a time
    x = model.embed(new, positions)  # (N, d_model)
    memories = pages.memory.flatten(2, 3)  # (L, 2, P·s, H_kv, d_k)

    def run_block(number, block, x):
        memory = memories[number]
        attention = partial(_attention, block.attention, memory, n, views)
        x = block.add(x, attention, block.attention_norm)
        feed_forward = partial(_in_pieces, block.feed_forward, n)
        return block.add(x, feed_forward, block.feed_forward_norm)

    x = model.run_blocks(x, run_block)
    ends = zip(x.split([len(part.tokens) for part in parts]), parts)
    x = torch.cat([rows[-part.n_logits :] for rows, part in ends])
    logits = _in_pieces(model.unembed, n, x)
    return list(logits.split([part.n_logits for part in parts]))


def _in_pieces(layer, n, x):
    """A layer's results, n rows at a time: copies, so that all begin alike."""
    return torch.cat([layer(piece.clone()) for piece in x.split(n)])


def _attention(layer, memory, n, views, x):
    """`MultiHeadAttention` over pages: (N, d_model) → (N, d_model)."""
    positions, written, readable, masks = zip(*views)
    pieces = zip(x.split(n), torch.cat(positions).split(n))
    made = [layer.project(x.clone(), positions=at) for x, at in pieces]
    q, k, v = (torch.cat(parts, -2) for parts in zip(*made))  # (H, N, d_k)
    memory[:, torch.cat(written)] = torch.stack([k, v]).transpose(1, 2)
    asks, contexts = q.split([*map(len, written)], 1), []
    for q, slots, mask in zip(asks, readable, masks):
        seen = memory.index_select(1, slots)  # (2, S, H_kv, d_k)
        k, v = seen[:, None].transpose(2, 3)  # (1, H_kv, S, d_k)
        q = q[None].contiguous()  # (1, H, T, d_k), a copy, too
        contexts.append(attend(q, k, v, mask=mask, causal=mask is None))
    context = merge_heads(torch.cat(contexts, -2))  # (1, N, d_model)
    return _in_pieces(layer.out, n, context[0])
