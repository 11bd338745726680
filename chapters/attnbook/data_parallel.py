"""Data parallel: each rank has all weights and some of the sequences.

`data_parallel` computes the loss and the gradients; `ShardedOptimizer` lets
each rank keep only a share of what AdamW remembers (ZeRO, stage 1). Both give
what a single process would, however unequal the ranks' shares are. They are
not fast: nothing that is sent is overlapped with what is computed.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from attnbook.collectives import (
    all_gather,
    all_reduce,
    reduce_scatter,
    share_sizes,
)
from attnbook.training import (
    Recipe,
    learning_rate,
    loss_share,
    make_optimizer,
    n_targets,
)
from attnbook.wire import Wire


def data_parallel(
    model: nn.Module,
    tokens: Tensor,
    targets: Tensor,
    segments: Tensor | None = None,
    *,
    wire: Wire,
    add_gradients: bool = True,
) -> float:
    """The loss and the gradients of a batch of which each rank has a part.

    The targets that count are counted over all ranks first, and each divides
    its sum of losses by this number, not by its own. So the shares add up to
    the mean over all targets, also where some ranks have more of them than
    others, or none.

    Args:
        model: the same in every rank. Its gradients are replaced.
        tokens, targets, segments: this rank's own sequences, as in
            `loss_share`; it may have none, (0, T).
        add_gradients: whether the ranks' gradients are added up here. A
            `ShardedOptimizer` does it itself.

    Returns:
        The mean loss over the batch of all ranks, the same in each.

    Raises:
        ValueError: no target counts in any rank.
    """
    parameters = list(model.parameters())
    device = parameters[0].device
    own = n_targets(targets)
    count = int(all_reduce(wire, torch.tensor([own], device=device)))
    if not count:
        raise ValueError(
            "no rank has a target that counts; expected at least one in the "
            "batch of all ranks; got only targets of -100, or no sequence"
        )
    model.zero_grad()
    loss = torch.zeros((), dtype=parameters[0].dtype, device=device)
    if own:
        loss = loss_share(model, tokens, targets, segments, total=count)
        loss.backward()
    if add_gradients:
        flat = all_reduce(wire, flat_gradients(parameters))
        sizes = [p.numel() for p in parameters]
        for p, gradient in zip(parameters, flat.split(sizes), strict=True):
            p.grad = gradient.view_as(p)
    return all_reduce(wire, loss.detach()).item()


def flat_gradients(parameters: Sequence[Tensor]) -> Tensor:
    """All gradients, one after the other, as one vector; 0 where is none."""
    gradients = [
        torch.zeros_like(p) if p.grad is None else p.grad for p in parameters
    ]
    return torch.cat([g.flatten() for g in gradients])


class ShardedOptimizer:
    """AdamW of which each rank keeps a part: ZeRO, stage 1.

    AdamW remembers two numbers for each weight, and changes each weight by
    itself. So the weights can be dealt out: a rank gets the summed gradients
    of its share, remembers and changes this share alone, and gives it to the
    others. What is sent is a reduce-scatter of the gradients and an
    all-gather of the weights, 2 (N − 1) · S bytes in all, as much as the
    all-reduce of plain data parallel. Each rank remembers 2 · S / N bytes
    instead of 2 · S.

    Args:
        model: the same in every rank.
        recipe: how it is trained; see `training.Recipe`.

    Source: Rajbhandari et al. (2020), arXiv:1910.02054.
    """

    def __init__(self, model: nn.Module, recipe: Recipe, wire: Wire) -> None:
        self.recipe = recipe
        self.wire = wire
        whole = make_optimizer(model, recipe)  # its groups, not its memory
        self._groups = [g["params"] for g in whole.param_groups]
        self._sizes = []
        mine = []
        for group, parameters in zip(whole.param_groups, self._groups):
            n = sum(p.numel() for p in parameters)
            sizes = share_sizes(n, wire.size)
            self._sizes.append(sizes)
            own = _flat(parameters).split(sizes)[wire.rank].clone()
            mine.append(group | {"params": [nn.Parameter(own)]})
        self.optimizer = torch.optim.AdamW(mine)

    def step(self, step: int) -> None:
        """Change the weights of all ranks once.

        The gradients in the model are those of this rank's share of the
        loss, not added up. They are shortened together, as by
        `clip_grad_norm_`, which needs one number from each rank.

        Args:
            step: its number, from 0 on, for the learning rate.
        """
        squares = self._groups[0][0].new_zeros(())
        shares = self.optimizer.param_groups
        for share, group, sizes in zip(shares, self._groups, self._sizes):
            parts = flat_gradients(group).split(sizes)
            gradient = reduce_scatter(self.wire, parts)
            share["params"][0].grad = gradient
            share["lr"] = learning_rate(step, self.recipe)
            squares = squares + gradient.square().sum()
        norm = all_reduce(self.wire, squares).sqrt()
        shorter = (self.recipe.clip / (norm + 1e-6)).clamp(max=1.0)
        for share in shares:
            share["params"][0].grad *= shorter
        self.optimizer.step()
        for share, group, sizes in zip(shares, self._groups, self._sizes):
            own = share["params"][0].detach()
            shapes = [(size,) for size in sizes]
            flat = torch.cat(all_gather(self.wire, own, shapes))
            with torch.no_grad():
                for p, new in zip(
                    group, flat.split([p.numel() for p in group])
                ):
                    p.copy_(new.view_as(p))

    @property
    def nbytes(self) -> int:
        """The bytes that AdamW remembers in this rank, without its counter."""
        return sum(
            value.numel() * value.element_size()
            for state in self.optimizer.state.values()
            for name, value in state.items()
            if name != "step"
        )


def _flat(parameters: Sequence[Tensor]) -> Tensor:
    """All weights, one after the other, as one vector."""
    return torch.cat([p.detach().flatten() for p in parameters])
