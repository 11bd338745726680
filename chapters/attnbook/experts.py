"""A mixture of experts: many feed-forward layers, few of them for each token.

A *router* gives each token a probability for every expert. The token goes to
the k experts with the highest, and gets their results, weighted. So a layer
can hold many weights and use few of them for a token.

Shapes: T tokens, d their width, E experts, f the width inside an expert, k
experts a token.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from attnbook.collectives import all_to_all, share_sizes
from attnbook.shapes import expect
from attnbook.values import check_sizes, number, whole
from attnbook.wire import Wire


class Routing(NamedTuple):
    """Where tokens go."""

    chosen: Tensor  # (T, k), integers: experts, the best first
    weights: Tensor  # (T, k): how much of the result each of them gives
    probabilities: Tensor  # (T, E): of all experts, from the router


def route(logits: Tensor, k: int) -> Routing:
    """Choose k experts for each token, from the router's logits (T, E).

    The weights are the probabilities of the chosen ones, divided by their
    sum; so they sum to one for each token.

    Raises:
        TypeError: logits that are no floating-point tensor, or a k that is
            no whole number.
        ValueError: logits without two axes, a k outside 1 … E.
    """
    expect("float", logits=(logits, "T E"))
    whole("k", k, at_least=1, at_most=logits.shape[-1])
    probabilities = logits.softmax(-1)
    weights, chosen = probabilities.topk(k, -1)
    return Routing(chosen, weights / weights.sum(-1, True), probabilities)


def balance_loss(routing: Routing, real: Tensor | None = None) -> Tensor:
    """How unevenly the experts are used: 1 where all get the same.

    It is E · Σ f_e P_e over the experts, where f_e is the share of choices
    that went to expert e, and P_e its mean probability. Only P_e has a
    gradient, so what is pushed down is the probability of experts that are
    chosen often. It can be below 1: f and P need not be large for the same
    experts.

    Args:
        routing: of T tokens.
        real: boolean (T,), False at padding, which does not count.

    Raises:
        ValueError: no token is real.

    Source: Fedus et al. (2021), arXiv:2101.03961, equations 4 to 6.
    """
    chosen, _, probabilities = routing
    if real is not None:
        expect("bool", real=(real, "T"), T=len(chosen))
        chosen, probabilities = chosen[real], probabilities[real]
    if not len(chosen):
        raise ValueError(
            "there is nothing to balance; expected one real token at least; "
            "got only padding"
        )
    E = probabilities.shape[-1]
    counts = torch.bincount(chosen.flatten(), minlength=E)
    shares = counts.to(probabilities.dtype) / chosen.numel()
    return E * (shares * probabilities.mean(0)).sum()


def within_capacity(
    chosen: Tensor, n_experts: int, capacity: int, real: Tensor | None = None
) -> Tensor:
    """Which choices (T, k) find a place, if an expert has so many at most.

    Places are given to all first choices, from the first token to the last,
    then to all second ones, and so on. Padding takes no place. A choice that
    finds none is dropped: the expert adds nothing for this token.

    Args:
        chosen: experts (T, k), the best first.
        n_experts: E.
        capacity: places for each expert.
        real: boolean (T,), False at padding.

    Returns:
        A boolean tensor (T, k).

    Raises:
        TypeError, ValueError: sizes that are no whole numbers from 1 on (0
            for the capacity), or tensors that do not fit.
    """
    expect("integer", chosen=(chosen, "T k"))
    whole("n_experts", n_experts, at_least=1)
    whole("capacity", capacity, at_least=0)
    asks = F.one_hot(chosen.T.flatten(), n_experts)  # (k·T, E), best first
    if real is not None:
        expect("bool", real=(real, "T"), T=len(chosen))
        asks = asks * real.repeat(chosen.shape[1])[:, None]
    place = (asks.cumsum(0) * asks).sum(-1)  # from 1 on; 0 for padding
    kept = (place > 0) & (place <= capacity)
    return kept.view(chosen.shape[1], -1).T


class Mixture(nn.Module):
    """E feed-forward layers without biases, and a router.

    Args:
        d_model: the width of a token.
        d_ff: the width inside each expert.
        n_experts: E.
        k: how many a token goes to.
        capacity_factor: places of each expert, as a multiple of what it
            would get if all got the same; without limit if not given.

    Raises:
        TypeError, ValueError: sizes that are no whole numbers from 1 on, a k
            above E, a factor that is not above 0.

    Source: Shazeer et al. (2017), arXiv:1701.06538.
    """

    def __init__(
        self,
        d_model: int,
        d_ff: int,
        n_experts: int,
        k: int,
        *,
        capacity_factor: float | None = None,
    ) -> None:
        super().__init__()
        check_sizes(d_model=d_model, d_ff=d_ff, n_experts=n_experts)
        self.k = whole("k", k, at_least=1, at_most=n_experts)
        if capacity_factor is not None:
            number("capacity_factor", capacity_factor, above=0)
        self.capacity_factor = capacity_factor
        self.router = nn.Parameter(torch.randn(d_model, n_experts) * 0.02)
        self.up = nn.Parameter(torch.randn(n_experts, d_model, d_ff) * 0.02)
        self.down = nn.Parameter(torch.randn(n_experts, d_ff, d_model) * 0.02)

    def forward(self, x: Tensor, real: Tensor | None = None) -> Tensor:
        """Each token's chosen experts, weighted: (T, d) → (T, d).

        Each expert computes the tokens that have chosen it, and no others.

        Raises:
            TypeError: x is no tensor, or not of the weights' type.
            ValueError: x has another width or other axes.
        """
        expect(self.up.dtype, x=(x, "T d"), d=self.up.shape[1])
        chosen, weights, _ = route(x @ self.router, self.k)
        if real is not None:
            weights = weights * real[:, None]
        if self.capacity_factor is not None:
            n_real = len(x) if real is None else int(real.sum())
            even = n_real * self.k / len(self.up)
            places = max(1, round(self.capacity_factor * even))
            kept = within_capacity(chosen, len(self.up), places, real)
            weights = weights * kept
        out = torch.zeros_like(x)
        for expert in range(len(self.up)):
            token, rank = (chosen == expert).nonzero(as_tuple=True)
            y = one_expert(x[token], self.up[expert], self.down[expert])
            out = out.index_add(0, token, weights[token, rank, None] * y)
        return out


def one_expert(x: Tensor, up: Tensor, down: Tensor) -> Tensor:
    """gelu(x @ up) @ down, for the tokens x (n, d) of one expert."""
    return F.gelu(x @ up, approximate="tanh") @ down


def dense_mixture(
    x: Tensor, router: Tensor, up: Tensor, down: Tensor, k: int
) -> Tensor:
    """The plain slow path: every expert computes every token, (T, d) → (T, d).

    The weights of experts that were not chosen are 0. With k = E this is the
    mixture of all experts by the router's probabilities.
    """
    chosen, weights, _ = route(x @ router, k)
    gates = x.new_zeros(len(x), len(up)).scatter(1, chosen, weights)
    inner = F.gelu(torch.einsum("td,edf->etf", x, up), approximate="tanh")
    return torch.einsum("te,etf,efd->td", gates, inner, down)


class _Moved(torch.autograd.Function):
    """Rows of a tensor, sent to the ranks that they are for; and back."""

    @staticmethod
    def forward(ctx, x, to_each, from_each, wire):
        ctx.counts = to_each, from_each
        ctx.wire = wire
        return _move(x, to_each, from_each, wire)

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient):
        to_each, from_each = ctx.counts
        found = _move(gradient, from_each, to_each, ctx.wire)
        return found, None, None, None


def _move(x, to_each, from_each, wire):
    """The all-to-all of rows: `to_each[r]` of them go to rank r."""
    likes = [x.new_empty(n, *x.shape[1:]) for n in from_each]
    return torch.cat(all_to_all(wire, x.split(to_each), likes))


def mixture_on_ranks(
    x: Tensor, router: Tensor, up: Tensor, down: Tensor, k: int, wire: Wire
) -> Tensor:
    """A mixture whose tokens and whose experts are dealt out among ranks.

    Each rank routes its own tokens. A token's vector goes to the ranks that
    have its experts, and their results come back, where they are weighted:
    two all-to-alls there and two back, each with as many vectors as there
    are choices of experts elsewhere. Before, the ranks tell each other how
    many vectors will come.

    The gradient of an expert is whole in the rank that has it. That of the
    router is each rank's share, for its own tokens: the router is *copied*,
    so the shares have to be added.

    Args:
        x: this rank's tokens, (T_r, d); it may have none.
        router: (d, E), the same in every rank.
        up, down: this rank's experts, (E_r, d, f) and (E_r, f, d), dealt out
            as `share_sizes` does it.
        k: experts a token.

    Returns:
        (T_r, d), what the mixture of a single process gives for these tokens.

    Raises:
        ValueError: shapes that do not fit, or not as many experts as this
            rank should have.
    """
    E = router.shape[-1]
    held = share_sizes(E, wire.size)  # experts of each rank
    expect(
        "float",
        router=(router, "d E"),
        up=(up, "... d f"),
        down=(down, "... f d"),
    )
    if len(up) != held[wire.rank] or len(down) != held[wire.rank]:
        raise ValueError(
            f"rank {wire.rank} has other experts than it should; expected "
            f"{held[wire.rank]} of {E}; got {len(up)}"
        )
    chosen, weights, _ = _routed(x, router, k)
    order = chosen.flatten().argsort(stable=True)  # by expert, so by rank
    token = order // k
    counts = torch.bincount(chosen.flatten(), minlength=E)
    told = list(counts.split(held))
    asked = [counts.new_empty(held[wire.rank]) for _ in range(wire.size)]
    asked = all_to_all(wire, told, asked)  # how many each rank will send
    to_each = [int(part.sum()) for part in told]
    from_each = [int(part.sum()) for part in asked]
    came = _Moved.apply(x[token], to_each, from_each, wire)
    done = _by_experts(came, torch.stack(asked), up, down)
    back = _Moved.apply(done, from_each, to_each, wire)
    shares = weights.flatten()[order, None]
    return torch.zeros_like(x).index_add(0, token, shares * back)


def _routed(x, router, k):
    """`route`, also for a rank without tokens."""
    if len(x):
        return route(x @ router, k)
    logits = x @ router
    return Routing(logits[:, :k].long(), logits[:, :k], logits)


def _by_experts(came, asked, up, down):
    """What this rank's experts make of the rows that came.

    The rows are sorted by the rank they came from, and then by expert;
    `asked` (N, E_r) says how many of each there are.
    """
    if not len(up):
        return came
    owner = torch.arange(len(up)).repeat(len(asked))
    expert = owner.to(came.device).repeat_interleave(asked.flatten())
    out = torch.zeros_like(came)
    for e in range(len(up)):
        (rows,) = (expert == e).nonzero(as_tuple=True)
        out = out.index_add(0, rows, one_expert(came[rows], up[e], down[e]))
    return out
