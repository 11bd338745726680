"""Training: a recipe, one step, and the loop around it."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from tqdm import tqdm

from attnbook.batches import Batches
from attnbook.config import check_fields, option
from attnbook.values import number, whole

_ONE_AT_A_TIME = threading.RLock()  # a mode is the model's, not a thread's


@dataclass(frozen=True)
class Recipe:
    """How a model is trained."""

    steps: int = option(1000, "updates of the weights", at_least=1)
    batch_size: int = option(32, "sequences a step", at_least=1)
    peak: float = option(1e-3, "highest learning rate", above=0)
    warmup: int = option(100, "steps before the peak", at_least=0)
    final: float = option(0.1, "last rate / peak", at_least=0, at_most=1)
    betas: tuple[float, float] = option(
        (0.9, 0.99), "AdamW's two decay rates", at_least=0, below=1
    )
    weight_decay: float = option(0.1, "AdamW's, of matrices", at_least=0)
    clip: float = option(1.0, "longest gradient let through", above=0)
    seed: int = option(0, "of all that is drawn", at_least=0, below=2**62)

    def __post_init__(self) -> None:
        check_fields(self)
        whole("warmup", self.warmup, below=self.steps)


def learning_rate(step: int, recipe: Recipe) -> float:
    """Up in a straight line to the peak at step `warmup`, then half a cosine.

    Source: Loshchilov and Hutter (2017), arXiv:1608.03983, no restarts.
    """
    if step < recipe.warmup:
        return recipe.peak * (step + 1) / (recipe.warmup + 1)
    falling = max(1, recipe.steps - 1 - recipe.warmup)  # steps on the way
    progress = (step - recipe.warmup) / falling
    height = (1 + math.cos(math.pi * progress)) / 2  # 1 → 0
    return recipe.peak * (recipe.final + (1 - recipe.final) * height)


def make_optimizer(model: nn.Module, recipe: Recipe) -> torch.optim.AdamW:
    """AdamW (arXiv:1711.05101). Matrices decay; a norm's weight rests at 1."""
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    others = [p for p in model.parameters() if p.ndim < 2]
    decay = {"params": matrices, "weight_decay": recipe.weight_decay}
    groups = [decay, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=recipe.peak, betas=recipe.betas)


def loss_share(
    model: nn.Module, tokens: Tensor, targets: Tensor, total: int | None = None
) -> Tensor:
    """What sequences (B, T) add to a mean loss over `total` targets, in nats.

    Targets of −100 do not count. Without `total` it is these targets' mean.
    """
    device = next(model.parameters()).device
    targets = targets.to(device).flatten()  # (B·T,)
    logits = model(tokens.to(device)).flatten(0, 1)  # (B·T, V)
    summed = F.cross_entropy(logits, targets, reduction="sum")
    return summed / (int((targets >= 0).sum()) if total is None else total)


def update(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batch: tuple[Tensor, Tensor],
    step: int,
    recipe: Recipe,
    loss_of: Callable[..., Tensor] = loss_share,
) -> float:
    """One step of the weights; returns the loss.

    Raises:
        ValueError: a loss or gradient not finite; the weights stay.
    """
    for group in optimizer.param_groups:
        group["lr"] = learning_rate(step, recipe)
    parameters = [p for g in optimizer.param_groups for p in g["params"]]
    optimizer.zero_grad()
    loss = loss_of(model, *batch)
    loss.backward()
    norm = nn.utils.clip_grad_norm_(parameters, recipe.clip)
    number(f"loss or gradient of step {step}", (loss + norm).item())
    optimizer.step()
    return loss.item()


def train(
    model: nn.Module,
    batches: Batches,
    recipe: Recipe,
    *,
    on_step: Callable[[int, list[float]], object] = lambda done, losses: None,
) -> list[float]:
    """Train a model in place; the loss of each step, in nats a target.

    It shows a bar, unless `ATTNBOOK_QUIET` is set, and calls `on_step` with
    the number of steps done and the losses so far.
    """
    optimizer = make_optimizer(model, recipe)
    generator = torch.Generator().manual_seed(recipe.seed)
    losses: list[float] = []
    model.train()
    with torch.random.fork_rng():  # the caller's random numbers stay
        torch.manual_seed(recipe.seed)
        quiet = "ATTNBOOK_QUIET" in os.environ
        for step in tqdm(range(recipe.steps), disable=quiet):
            batch = batches(recipe.batch_size, generator)
            losses.append(update(model, optimizer, batch, step, recipe))
            on_step(step + 1, losses)
    model.eval()
    return losses


def mean_loss(
    model: nn.Module, tokens: Tensor, targets: Tensor, *, batch_size: int = 64
) -> float:
    """The mean loss over sequences (N, T), in nats, without dropout."""
    total = int((targets >= 0).sum())
    parts = zip(tokens.split(batch_size), targets.split(batch_size))
    with evaluating(model):
        return sum(loss_share(model, x, y, total).item() for x, y in parts)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[nn.Module]:
    """In `eval` mode and without gradients; the mode is restored."""
    with _ONE_AT_A_TIME, torch.no_grad():
        was_training = model.training
        try:
            yield model.eval()
        finally:
            model.train(was_training)
