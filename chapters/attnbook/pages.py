"""Pages: memory for keys and values, lent in small pieces and shared.

A page has room for a few tokens. A request holds a *table*, its pages in
order: position p stands in page `table[p // size]`, at offset `p % size`.
Full pages have names, by which a prompt with the same beginning finds them.

Axis names: L layers, P pages, s tokens a page, H heads, H_kv heads of keys
and values, N new tokens of all requests, R requests with T new tokens each,
S keys. Source: Kwon et al. (2023), arXiv:2309.06180.
"""

from __future__ import annotations

import hashlib
import itertools
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
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
        text = ",".join(map(str, tokens[end - size : end]))
        name = hashlib.sha256(name + text.encode()).digest()
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
        known = itertools.takewhile(self.page_of.__contains__, names)
        return [self.page_of[name] for name in known]

    def _take(self):
        page, _ = self.free.popitem(last=False)
        self._forget(page)
        self.holders[page] = 1
        return page

    def _forget(self, page):
        if page in self.name_of:
            del self.page_of[self.name_of.pop(page)]

    def write(self, layer: int, slots: Tensor, k: Tensor, v: Tensor) -> None:
        """Put keys and values (H_kv, N, d_k) into their slots (N,)."""
        self.keys[layer].flatten(0, 1)[slots] = k.transpose(0, 1)
        self.values[layer].flatten(0, 1)[slots] = v.transpose(0, 1)

    def read(self, layer: int, group: Group) -> list[Tensor]:
        """Keys and values of a group's requests, (R, H_kv, S, d_k) each."""
        found = []
        for memory in (self.keys[layer], self.values[layer]):
            x = memory[group.tables].flatten(1, 2)  # (R, ≥ S, H_kv, d_k)
            x = x[:, : group.empty.shape[-1]]
            if len(x) > 1:
                # Behind a shorter text stands whatever was there, perhaps
                # NaN, and a weight of 0 times NaN is NaN.
                x = x.masked_fill(group.empty[..., None, None], 0)
            found.append(x.transpose(1, 2))
        return found


class Part(NamedTuple):
    """What a request brings to a step: new tokens from position `start` on;
    after the last `n_logits` of them it wants logits."""

    table: Sequence[int]
    start: int
    tokens: Sequence[int]
    n_logits: int = 1


class Group(NamedTuple):
    """R requests with T new tokens each, which attend together."""

    rows: Tensor  # (R, T), among the N tokens of the step
    tables: Tensor  # (R, pages)
    empty: Tensor  # (R, S), True behind a text's end
    mask: Tensor  # (R, 1 or H, T, S)


@torch.inference_mode()
def read_parts(
    model: GPT, pages: Pages, parts: Sequence[Part], *, exact: bool = False
) -> list[Tensor]:
    """Read the new tokens of all parts in one pass: logits (n, V) a part.

    Their pages must be reserved; keys and values are written into them.
    With `exact` each token is multiplied, and attends, by itself, so that no
    bit of a result depends on what stands beside it.
    """
    device, s = pages.keys.device, pages.size
    tokens = torch.tensor([t for p in parts for t in p.tokens], device=device)
    places = [
        (part.table[p // s] * s + p % s, p)
        for part in parts
        for p in range(part.start, part.start + len(part.tokens))
    ]
    slots, positions = torch.tensor(places, device=device).T  # (N,) each
    groups = _groups(model, pages, parts, exact)
    n = 1 if exact else len(tokens)
    x = model.embed(tokens, positions)  # (N, d_model)
    for index, block in enumerate(model.blocks):
        add: Any = block.add
        attention = partial(
            _attention, block.attention, index, pages, slots, groups, n
        )
        x = add(x, attention, block.attention_norm, positions=positions)
        feed_forward = partial(in_pieces, block.feed_forward, n)
        x = add(x, feed_forward, block.feed_forward_norm)
    each = x.split([len(p.tokens) for p in parts])
    x = torch.cat([a[len(a) - p.n_logits :] for a, p in zip(each, parts)])
    logits = in_pieces(model.unembed, n, x) if len(x) else x
    return list(logits.split([p.n_logits for p in parts]))


def in_pieces(layer: Callable, n: int, x: Tensor) -> Tensor:
    """A layer's results for n rows at a time: (N, …) → (N, …)."""
    if len(x) <= n:
        return layer(x)
    # Copies, so that each begins at an address as round as the others': the
    # order in which a product is summed may hang on it.
    return torch.cat([layer(piece.clone()) for piece in x.split(n)])


def _attention(layer, index, pages, slots, groups, n, x, positions):
    """`MultiHeadAttention` over pages: (N, d_model) → (N, d_model)."""
    pieces = [
        layer.project(piece.clone(), positions=at)
        for piece, at in zip(x.split(n), positions.split(n))
    ]
    q, k, v = (torch.cat(each, -2) for each in zip(*pieces))  # (H, N, d_k)
    pages.write(index, slots, k, v)
    context = torch.empty_like(q)
    for group in groups:
        keys, values = pages.read(index, group)  # (R, H_kv, S, d_k)
        mine = q[:, group.rows].transpose(0, 1)  # (R, H, T, d_k)
        seen = attend(mine, keys, values, mask=group.mask)
        context[:, group.rows] = seen.transpose(0, 1)
    return in_pieces(layer.out, n, merge_heads(context))


def _groups(model, pages, parts, exact):
    """Who attends together: requests with as many new tokens."""
    together, row = {}, 0
    for part in parts:
        T = len(part.tokens)
        for n in range(T) if exact else [0]:
            kind = (row + n, 1) if exact else (None, T)
            here = row + n, part.start + n, part.table
            together.setdefault(kind, []).append(here)
        row += T
    groups = []
    for (_, T), members in together.items():
        row, start = torch.tensor([m[:2] for m in members])[..., None].unbind(
            1
        )
        positions = start + torch.arange(T)  # (R, T)
        S = int(positions.max()) + 1
        width = pages.pages_for(S)
        tables = [[*t[:width], *[0] * (width - len(t))] for *_, t in members]
        keys = torch.arange(S)
        mask = (keys <= positions[..., None])[:, None]  # (R, 1, T, S)
        if model.config.positions == "alibi":
            bias = alibi_bias(model.config.n_heads, positions, keys)
            mask = bias.masked_fill(~mask, -torch.inf).to(pages.keys.dtype)
        found = row + torch.arange(T), torch.tensor(tables), keys >= start + T
        groups.append(
            Group(*(x.to(pages.keys.device) for x in (*found, mask)))
        )
    return groups
