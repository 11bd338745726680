"""The command `python -m attnbook hands`: one step, on one rank and on many.

It computes the same losses and gradients by a single rank and by several, in
each of the ways of chapter 24, and says how far they differ and how many
bytes were sent. Under torchrun the ranks are its processes, on one machine or
on several; else they are threads of this one.
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from attnbook.attention import scaled_dot_product_attention
from attnbook.collectives import all_reduce, share_sizes
from attnbook.data_parallel import ShardedOptimizer, data_parallel
from attnbook.experts import Mixture, mixture_on_ranks, route
from attnbook.gpt import GPT, GPTConfig
from attnbook.layers import TransformerBlock
from attnbook.pipeline import pipeline
from attnbook.placed import REPLICATED, place, together
from attnbook.ring import ring_attention
from attnbook.run.processes import joined, processes_here
from attnbook.tensor_parallel import block_on_ranks, deal_block
from attnbook.training import (
    Recipe,
    loss_share,
    make_optimizer,
    update,
)
from attnbook.typed import add_up, apply, backward
from attnbook.values import whole
from attnbook.wire import ProcessWire, Wire, on_threads

#: How far a number may be from that of a single rank, in float64, as a share
#: of the largest number of its tensor (or of 1, if that is larger).
CLOSE = 1e-12

#: What a number takes in float64.
SIZE = 8

#: The widths of queries, keys and values in the ring.
WIDTHS = (4, 4, 3)

Kind = TypeVar("Kind", bound=nn.Module)

RECIPE = Recipe(steps=4, warmup=1, batch_size=7, clip=0.3)


@dataclass(frozen=True)
class Shared:
    """How one way of sharing a step compares with a single rank.

    Attributes:
        way: its name.
        shares: what each rank had.
        difference: the largest one, as a share of the tensor's largest.
        sent: the bytes that this rank has sent.
        formula: the bytes that all ranks should send together.
    """

    way: str
    shares: list[int]
    difference: float
    sent: int
    formula: int


def unequal(n: int, ranks: int) -> list[int]:
    """Shares of n things that are unequal: rank 0 gets one, the last most.

    >>> unequal(9, 4)
    [1, 1, 1, 6]
    """
    return [1] * (ranks - 1) + [n - ranks + 1]


def normal(*shape: int, seed: int) -> Tensor:
    """Normal random numbers in float64, the same in every rank."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def filled(module: Kind, seed: int) -> Kind:
    """A module in float64 whose weights are normal random numbers."""
    module.double()
    with torch.no_grad():
        for n, p in enumerate(module.parameters()):
            p.copy_(0.4 * normal(*p.shape, seed=seed + n))
    return module


def apart(found: Sequence[Tensor], wanted: Sequence[Tensor]) -> float:
    """The largest difference, as a share of a tensor's largest number."""
    differences = [
        ((a - b).abs().max() / b.abs().max().clamp(min=1)).item()
        for a, b in zip(found, wanted, strict=True)
        if b.numel()
    ]
    return max(differences, default=0.0)


def gradients_of(parameters: Iterable[Tensor]) -> list[Tensor]:
    """Their gradients, of which none is missing."""
    found = []
    for p in parameters:
        assert p.grad is not None
        found.append(p.grad.clone())
    return found


def small_gpt() -> tuple[GPT, Tensor, Tensor]:
    """A model, and seven sequences with unequal numbers of targets."""
    config = GPTConfig(
        vocab_size=11, context=6, d_model=8, n_heads=2, n_layers=1
    )
    with torch.random.fork_rng([]):
        model = filled(GPT(config), 1)
    generator = torch.Generator().manual_seed(2)
    tokens = torch.randint(11, (7, 6), generator=generator)
    targets = torch.randint(11, (7, 6), generator=generator)
    lengths = torch.tensor([1, 6, 2, 5, 4, 6, 3])[:, None]
    return model, tokens, targets.where(torch.arange(6) < lengths, -100)


def n_bytes(module: nn.Module) -> int:
    """The bytes of a module's weights."""
    return sum(p.numel() for p in module.parameters()) * SIZE


def by_data(wire: Wire) -> Shared:
    """A batch dealt out: the loss and all gradients."""
    model, tokens, targets = small_gpt()
    loss = loss_share(model, tokens, targets)
    loss.backward()
    wanted = [loss.detach(), *gradients_of(model.parameters())]
    sizes = unequal(len(tokens), wire.size)
    own_tokens, own_targets = (
        x.split(sizes)[wire.rank] for x in (tokens, targets)
    )
    found = data_parallel(model, own_tokens, own_targets, wire=wire)
    gradients = gradients_of(model.parameters())
    difference = apart(
        [torch.tensor(found, dtype=torch.float64), *gradients], wanted
    )
    # The gradients, and two single numbers: the count and the loss.
    formula = 2 * (wire.size - 1) * (n_bytes(model) + 2 * SIZE)
    return Shared("data parallel", sizes, difference, wire.sent, formula)


def by_zero(wire: Wire) -> Shared:
    """The same with AdamW's memory dealt out: the weights after four steps."""
    model, tokens, targets = small_gpt()
    alone = copy.deepcopy(model)
    optimizer = make_optimizer(alone, RECIPE)
    shared = ShardedOptimizer(model, RECIPE, wire)
    sizes = unequal(len(tokens), wire.size)
    own_tokens, own_targets = (
        x.split(sizes)[wire.rank] for x in (tokens, targets)
    )
    for step in range(RECIPE.steps):
        update(alone, optimizer, (tokens, targets), step, RECIPE)
        data_parallel(
            model, own_tokens, own_targets, wire=wire, add_gradients=False
        )
        shared.step(step)
    difference = apart([*model.parameters()], [*alone.parameters()])
    # And a third single number, the length of the gradient.
    one_step = 2 * (wire.size - 1) * (n_bytes(model) + 3 * SIZE)
    formula = RECIPE.steps * one_step
    return Shared("ZeRO, stage 1", sizes, difference, wire.sent, formula)


def by_heads(wire: Wire) -> Shared:
    """A block's heads and inner numbers dealt out."""
    with torch.random.fork_rng([]):
        block = filled(TransformerBlock(15, 5), 3)
    x = normal(2, 6, 15, seed=4).requires_grad_()
    out = block(x, causal=True)
    out.square().sum().backward()
    on_ranks = place(x, REPLICATED, wire, learned=True)
    parts = deal_block(block, wire)
    found = block_on_ranks(on_ranks, parts, 3)
    backward(add_up(apply(torch.square, found)))
    sent = wire.sent
    attention = block.attention
    (key_values,) = gradients_of([attention.key_value.weight])
    keys, values = key_values.chunk(2)
    wanted = {"key": keys.T, "value": values.T}
    for name, place_of_it in {
        "query": "attention.query",
        "out": "attention.out",
        "up": "feed_forward.up",
        "down": "feed_forward.down",
        "attention_norm": "attention_norm",
        "feed_forward_norm": "feed_forward_norm",
    }.items():
        layer = block.get_submodule(place_of_it)
        weight, bias = gradients_of(layer.parameters())
        if weight.ndim == 2:
            weight = weight.T
        wanted |= {name: weight, f"{name}_bias": bias}
    gradients = [together(parts[name].gradient()) for name in wanted]
    of_x = gradients_of([x])
    difference = apart(
        [found.local.detach(), on_ranks.gradient().local, *gradients],
        [out.detach(), *of_x, *wanted.values()],
    )
    formula = 4 * 2 * (wire.size - 1) * x.numel() * SIZE
    shares = share_sizes(attention.n_heads, wire.size)
    return Shared("tensor parallel", shares, difference, sent, formula)


def by_tokens(wire: Wire) -> Shared:
    """A sequence dealt out: attention in a ring."""
    whole_text = [
        normal(2, 9, d, seed=n).requires_grad_() for n, d in enumerate(WIDTHS)
    ]
    mask = torch.ones(9, 9).tril().bool()
    out = scaled_dot_product_attention(*whole_text, mask=mask).context
    wanted = torch.autograd.grad(out.square().sum(), whole_text)
    sizes = unequal(9, wire.size)
    q, k, v = (
        x.detach().split(sizes, 1)[wire.rank].clone().requires_grad_()
        for x in whole_text
    )
    found = ring_attention(q, k, v, sizes, wire)
    gradients = torch.autograd.grad(found.square().sum(), (q, k, v))
    parts = [x.split(sizes, 1)[wire.rank] for x in (out, *wanted)]
    difference = apart([found, *gradients], parts)
    # Keys and values of all tokens, once there and once back.
    formula = 2 * (wire.size - 1) * 2 * 9 * sum(WIDTHS[1:]) * SIZE
    return Shared("ring attention", sizes, difference, wire.sent, formula)


def by_experts(wire: Wire) -> Shared:
    """Tokens and experts dealt out."""
    with torch.random.fork_rng([]):
        mixture = filled(Mixture(4, 3, 5, 2), 5)
    x = normal(9, 4, seed=6).requires_grad_()
    out = mixture(x)
    weights: list[Tensor] = [x, mixture.router, mixture.up, mixture.down]
    wanted = torch.autograd.grad(out.square().sum(), weights)
    sizes = unequal(9, wire.size)
    held = share_sizes(5, wire.size)
    dealt = [sizes, None, held, held]
    own = [
        (w if by is None else w.split(by)[wire.rank]).detach().clone()
        for w, by in zip(weights, dealt)
    ]
    tokens, router, up, down = (w.requires_grad_() for w in own)
    found = mixture_on_ranks(tokens, router, up, down, 2, wire)
    gradients = list(torch.autograd.grad(found.square().sum(), own))
    sent = wire.sent
    gradients[1] = all_reduce(wire, gradients[1])  # the router's
    parts = [
        w if by is None else w.split(by)[wire.rank]
        for w, by in zip((out, *wanted), [sizes, *dealt])
    ]
    difference = apart([found, *gradients], parts)
    rank_of = torch.arange(wire.size).repeat_interleave(torch.tensor(held))
    home = torch.arange(wire.size).repeat_interleave(torch.tensor(sizes))
    chosen = route(x @ mixture.router, 2).chosen
    away = int((rank_of[chosen] != home[:, None]).sum())
    # Four times the vectors that go elsewhere; before, a count an expert.
    formula = 4 * away * 4 * SIZE + (wire.size - 1) * 5 * SIZE
    return Shared("experts", held, difference, sent, formula)


def by_layers(wire: Wire) -> Shared:
    """Layers dealt out, and a batch in three pieces of different sizes."""
    with torch.random.fork_rng([]):
        layers = [filled(nn.Linear(5, 5), 10 * n) for n in range(5)]
    model = nn.Sequential(*(nn.Sequential(a, nn.Tanh()) for a in layers))
    x = normal(7, 5, seed=7)
    loss = F.mse_loss(model(x), torch.ones_like(x), reduction="sum")
    loss.backward()
    sizes = unequal(5, wire.size)
    first = sum(sizes[: wire.rank])
    stage = model[first : first + sizes[wire.rank]]
    wanted = [loss.detach(), *gradients_of(stage.parameters())]
    stage.zero_grad()

    def share(y: Tensor, number: int) -> Tensor:
        return F.mse_loss(y, torch.ones_like(y), reduction="sum")

    found = pipeline(stage, x.split([1, 4, 2]), share, wire)
    gradients = gradients_of(stage.parameters())
    difference = apart(
        [torch.tensor(found, dtype=torch.float64), *gradients], wanted
    )
    # There and back over each border between two ranks, and the loss.
    formula = 2 * (wire.size - 1) * (x.numel() + 1) * SIZE
    return Shared("pipeline", sizes, difference, wire.sent, formula)


WAYS: tuple[Callable[[Wire], Shared], ...] = (
    by_data,
    by_zero,
    by_heads,
    by_tokens,
    by_experts,
    by_layers,
)


def compare(wire: Wire) -> list[Shared]:
    """Every way of sharing a step, by this rank.

    The differences are the largest of all ranks, and the bytes the sum over
    all.
    """
    found = []
    for way in WAYS:
        wire.sent = 0
        one = way(wire)
        table = torch.zeros(wire.size, 2, dtype=torch.float64)
        table[wire.rank] = torch.tensor([one.difference, float(one.sent)])
        differences, sent = all_reduce(wire, table).unbind(-1)
        largest = differences.max().item()
        total = int(sent.sum())
        found.append(Shared(one.way, one.shares, largest, total, one.formula))
    return found


def report(found: list[Shared], ranks: str) -> str:
    """What was found, as a table."""
    lines = [
        f"{ranks}, against one rank",
        f"{'':16}{'shares':14}{'largest difference':20}"
        f"{'bytes sent':>12}{'by formula':>12}",
    ]
    for one in found:
        within = "at most 1e-12" if one.difference <= CLOSE else "TOO LARGE"
        shares = " ".join(map(str, one.shares))
        lines.append(
            f"{one.way:16}{shares:14}{within:20}"
            f"{one.sent:12,}{one.formula:12,}"
        )
    return "\n".join(lines)


def as_one(found: list[Shared]) -> bool:
    """Whether all is as by one rank, and the bytes are as the formulas say."""
    return all(
        one.difference <= CLOSE and one.sent == one.formula for one in found
    )


def main(arguments: list[str] | None = None) -> int:
    """Run the command: 0 if all ways agree with one rank, else 1."""
    parser = argparse.ArgumentParser(
        prog="python -m attnbook hands",
        description="One step of training, computed by one rank and by "
        "several, in six ways. Under torchrun its processes are the ranks: "
        "torchrun --standalone --nproc-per-node 4 -m attnbook hands",
    )
    parser.add_argument(
        "--ranks",
        type=int,
        default=4,
        help="threads, where there is no torchrun (1 to 4)",
    )
    options = parser.parse_args(arguments)
    processes = processes_here()[1]
    ranks = processes if processes > 1 else options.ranks
    try:
        whole("ranks", ranks, at_least=1, at_most=4)
    except ValueError as error:
        parser.error(str(error))
    if processes == 1:
        found = on_threads(ranks, compare)[0]
        print(report(found, f"{ranks} ranks, threads of one process"))
        return 0 if as_one(found) else 1
    with joined(torch.device("cpu")):
        wire = ProcessWire()
        found = compare(wire)
        wire.finish()
        dist.barrier()
        print(report(found, f"{ranks} ranks, processes joined by gloo"))
    return 0 if as_one(found) else 1
