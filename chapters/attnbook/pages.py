"""Pages: memory for keys and values, lent in small pieces and shared.

A page (a *block* in vLLM) has room for s tokens. A request has a *table*: its
pages, in the order of its text, so the token at position p is kept on page
`table[p // s]`, at place `p % s`. Two requests whose texts begin alike hold
the same pages.

Axis names: L layers, P pages, H heads, H_kv heads of keys and values, N new
tokens of all requests, T those of one, S keys of one.
Source: Kwon et al. (2023), arXiv:2309.06180.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import takewhile
from typing import NamedTuple

import torch
from torch import Tensor

from attnbook.attention import attend, merge_heads
from attnbook.gpt import GPT
from attnbook.layers import MultiHeadAttention, TransformerBlock
from attnbook.positions import alibi_bias
from attnbook.values import check_sizes


def page_names(tokens: Sequence[int], size: int) -> list[bytes]:
    """Name each full page of a text by its tokens and all that come before.

    Keys and values hang on everything before them, so the same tokens after
    another beginning need another name. Each name is therefore made from the
    name before it.

    Args:
        size: tokens on a page.
    """
    names = [b""]
    for end in range(size, len(tokens) + 1, size):
        text = str(list(tokens[end - size : end])).encode()
        names.append(hashlib.sha256(names[-1] + text).digest())
    return names[1:]


class Pages:
    """The pool of pages: who holds which, and which is taken next.

    Args:
        n_pages: P, how many there are.
        size: s, tokens on a page.
        model: whose keys and values are kept.

    Shapes: memory (L, 2, P, s, H_kv, d_k), the keys and values of each layer.

    Raises:
        ValueError: a number of pages or a size below 1.
    """

    def __init__(self, n_pages: int, size: int, model: GPT) -> None:
        check_sizes(n_pages=n_pages, page_size=size)
        cache = model.new_cache(n_pages, size)
        both = torch.stack([cache.keys, cache.values], 1)
        self.memory = both.transpose(3, 4).contiguous()
        self.size = size
        #: For each page, in how many tables it is.
        self.holders = [0] * n_pages
        #: The pages that are in no table; the first is taken next.
        self.free = OrderedDict.fromkeys(range(n_pages))
        #: The pages that can be found by name, and the name of each.
        self.page_of: dict[bytes, int] = {}
        self.name_of: dict[int, bytes] = {}

    def reserve(self, table: list[int], start: int, end: int) -> bool:
        """Let a request write its tokens from position `start` up to `end`.

        The table gets the pages that it lacks. A page that another table
        holds too is copied first, so that nobody else's tokens change.

        Returns:
            Whether there were enough free pages; if not, nothing changes.
        """
        old = start // self.size  # number of the page where writing begins
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
        """Make one more table of pages, which are not free any longer."""
        for page in pages:
            self.holders[page] += 1
            self.free.pop(page, None)
        return list(pages)

    def cut(self, table: list[int], n_tokens: int) -> None:
        """Give back a table's pages after its first `n_tokens` tokens.

        The last page goes first. Free pages are taken in the order in which
        they came back, so a text loses its end before its beginning, and what
        is left can still be found.
        """
        while (len(table) - 1) * self.size >= n_tokens:
            page = table.pop()
            self.holders[page] -= 1
            if self.holders[page] == 0:
                self.free[page] = None
                # Nobody can find a page without a name again, so it is reused
                # first.
                self.free.move_to_end(page, last=page in self.name_of)

    def remember(self, table: Sequence[int], tokens: Sequence[int]) -> None:
        """Let the full pages of a table be found by the tokens on them."""
        for page, name in zip(table, page_names(tokens, self.size)):
            if name not in self.page_of and page not in self.name_of:
                self.page_of[name] = page
                self.name_of[page] = name

    def find(self, tokens: Sequence[int]) -> list[int]:
        """The pages that hold the longest known beginning of a text.

        The search ends at the first page that is not known: what comes after
        it cannot be used without it.
        """
        names = page_names(tokens, self.size)
        known = takewhile(self.page_of.__contains__, names)
        return [self.page_of[name] for name in known]

    def _take(self) -> int:
        """Take the page that has been free for longest, and return its number.

        It is held by one table now. If a text was remembered there, it no
        longer is.
        """
        page, _ = self.free.popitem(last=False)
        self._forget(page)
        self.holders[page] = 1
        return page

    def _forget(self, page: int) -> None:
        """Take a page's name away, since its tokens are about to change."""
        name = self.name_of.pop(page, None)
        if name is not None:
            del self.page_of[name]


class Part(NamedTuple):
    """What one request brings to a step: new tokens, and a table of pages."""

    #: Its pages, on which room for the new tokens is reserved.
    table: Sequence[int]
    #: The position of the first new token.
    start: int
    #: The new tokens.
    tokens: Sequence[int]
    #: After how many of the last tokens logits are wanted, at least one.
    n_logits: int = 1


class _View(NamedTuple):
    """What some new tokens of one request write and read in one layer.

    A slot is a place in the memory of all pages: page · s + place on it.
    """

    #: Positions of the new tokens, (T,).
    positions: Tensor
    #: Slots in which their keys and values are written, (T,).
    written: Tensor
    #: Slots that are read, those of the text up to the last new token, (S,).
    read: Tensor
    #: Added to the scores, (H, T, S); None where only later keys are hidden.
    mask: Tensor | None


@torch.inference_mode()
def read_parts(
    model: GPT, pages: Pages, parts: Sequence[Part], exact: bool = False
) -> list[Tensor]:
    """Read the new tokens of all parts in one pass of the model.

    The products with the model's matrices are made for all tokens together.
    Attention is computed for each part alone, over the tokens on its pages.

    Args:
        parts: at least one; their pages must be reserved.
        exact: multiply each token by itself. That is slower, but a product
            of several rows may be summed in another order than one of a
            single row, and then the last bit hangs on who else is served.

    Returns:
        For each part the logits after its last `n_logits` tokens,
        (n_logits, V).
    """
    views = [
        view for part in parts for view in _views(model, pages, part, exact)
    ]
    positions = torch.cat([view.positions for view in views])  # (N,)
    new = positions.new_tensor([t for part in parts for t in part.tokens])
    n = 1 if exact else len(new)  # rows that are multiplied at a time
    x = model.embed(new, positions)  # (N, d_model)
    memories = pages.memory.flatten(2, 3)  # (L, 2, P·s, H_kv, d_k)

    def run_block(number: int, block: TransformerBlock, x: Tensor) -> Tensor:
        memory = memories[number]
        attention = partial(_attention, block.attention, memory, n, views)
        x = block.add(x, attention, block.attention_norm)
        feed_forward = partial(_apply_by_rows, block.feed_forward, n)
        return block.add(x, feed_forward, block.feed_forward_norm)

    x = model.run_blocks(x, run_block)
    ends = zip(x.split([len(part.tokens) for part in parts]), parts)
    x = torch.cat([rows[-part.n_logits :] for rows, part in ends])
    logits = _apply_by_rows(model.unembed, n, x)
    return list(logits.split([part.n_logits for part in parts]))


def _views(
    model: GPT, pages: Pages, part: Part, exact: bool
) -> Iterator[_View]:
    """The view of a part's new tokens; with `exact`, one for each token."""
    table, start, tokens, _ = part
    s = pages.size
    size = 1 if exact else len(tokens)  # new tokens in a view
    for first in range(start, start + len(tokens), size):
        keys = torch.arange(first + size, device=pages.memory.device)  # (S,)
        slots = keys.new_tensor(table)[keys // s] * s + keys % s
        own = keys[first:]
        mask = None
        if model.config.positions == "alibi":
            bias = alibi_bias(model.config.n_heads, own, keys)
            mask = bias.masked_fill(bias > 0, -torch.inf)  # (H, T, S)
        yield _View(own, slots[first:], slots, mask)


def _apply_by_rows(
    layer: Callable[[Tensor], Tensor], n: int, x: Tensor
) -> Tensor:
    """Apply a layer to n rows of x at a time.

    Each slice is cloned: a kernel may sum in another order where memory is
    aligned otherwise, and then the last bit would change.
    """
    return torch.cat([layer(piece.clone()) for piece in x.split(n)])


def _attention(
    layer: MultiHeadAttention,
    memory: Tensor,
    n: int,
    views: Sequence[_View],
    x: Tensor,
) -> Tensor:
    """What `MultiHeadAttention` computes, with keys and values on pages.

    The new keys and values of all views are written before any is read.

    Args:
        memory: of this layer, (2, P·s, H_kv, d_k).
        n: rows that are multiplied at a time.

    Shapes: x (N, d_model) → the same.
    """
    positions = torch.cat([view.positions for view in views])  # (N,)
    pieces = zip(x.split(n), positions.split(n))
    # Cloned for the reason that `_apply_by_rows` gives.
    made = [layer.project(x.clone(), positions=at) for x, at in pieces]
    q, k, v = (torch.cat(parts, -2) for parts in zip(*made))  # (H, N, d_k)
    written = torch.cat([view.written for view in views])  # (N,)
    memory[:, written] = torch.stack([k, v]).transpose(1, 2)
    contexts = []
    asked = q.split([len(view.written) for view in views], 1)
    for own, view in zip(asked, views):
        seen = memory.index_select(1, view.read)  # (2, S, H_kv, d_k)
        keys, values = seen[:, None].transpose(2, 3)  # (1, H_kv, S, d_k)
        context = attend(
            own[None].contiguous(),  # (1, H, T, d_k)
            keys,
            values,
            mask=view.mask,
            causal=view.mask is None,
        )
        contexts.append(context)
    context = merge_heads(torch.cat(contexts, -2))  # (1, N, d_model)
    return _apply_by_rows(layer.out, n, context[0])
