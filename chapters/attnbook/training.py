"""Training: a recipe, one step, and the loop around it.

What lets a long run survive is in `attnbook.run`, around the same step.
"""

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

from attnbook.config import check_fields, option
from attnbook.text import Batches


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
        if self.warmup >= self.steps:
            raise ValueError(
                "warmup is out of its range; expected below steps, "
                f"{self.steps}; got {self.warmup}"
            )


def learning_rate(step: int, recipe: Recipe) -> float:
    """The learning rate of step 0, 1, …, steps − 1.

    It rises in a straight line, has its peak at step `warmup`, and falls
    along half a cosine to `final` times the peak at the last step.

    Source: Loshchilov and Hutter (2017), arXiv:1608.03983, no restarts.
    """
    if step < recipe.warmup:
        return recipe.peak * (step + 1) / (recipe.warmup + 1)
    falling = max(1, recipe.steps - 1 - recipe.warmup)  # steps on the way
    progress = min(1, (step - recipe.warmup) / falling)
    height = (1 + math.cos(math.pi * progress)) / 2  # 1 → 0
    return recipe.peak * (recipe.final + (1 - recipe.final) * height)


def decay_groups(model: nn.Module, weight_decay: float) -> list[dict]:
    """The parameters in two groups, as an optimiser takes them.

    Only matrices decay. Decay keeps small what multiplies the stream; a
    bias multiplies nothing, and the rest point of a norm's weight is 1, not
    0. A parameter with two names, such as a tied embedding, counts once.
    """
    learned = [p for p in model.parameters() if p.requires_grad]
    matrices = [p for p in learned if p.ndim >= 2]
    others = [p for p in learned if p.ndim < 2]
    return [
        {"params": matrices, "weight_decay": weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]


def make_optimizer(model: nn.Module, recipe: Recipe) -> torch.optim.AdamW:
    """AdamW (Loshchilov and Hutter, 2019, arXiv:1711.05101)."""
    groups = decay_groups(model, recipe.weight_decay)
    return torch.optim.AdamW(groups, lr=recipe.peak, betas=recipe.betas)


def loss_share(
    model: nn.Module, tokens: Tensor, targets: Tensor, total: int | None = None
) -> Tensor:
    """What sequences add to a mean loss over `total` targets, in nats.

    However a batch is shared out, and however unevenly it is padded, the
    shares and their gradients add up to those of the whole. Without `total`
    these sequences are the whole, and it is their mean loss.

    Shapes: tokens, targets (B, T); nothing is asked where a target is −100.
    """
    logits = model(tokens).flatten(0, 1)  # (B·T, V)
    summed = F.cross_entropy(logits, targets.flatten(), reduction="sum")
    return summed / (int((targets >= 0).sum()) if total is None else total)


def update(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batch: tuple[Tensor, Tensor],
    step: int,
    recipe: Recipe,
    loss_of: Callable[..., Tensor] = loss_share,
) -> float:
    """One step: forward, loss, backward, clip, step. Returns the loss.

    Raises:
        ValueError: a loss or gradient not finite; the weights stay.
    """
    parameters = [p for g in optimizer.param_groups for p in g["params"]]
    tokens, targets = (t.to(parameters[0].device) for t in batch)
    for group in optimizer.param_groups:
        group["lr"] = learning_rate(step, recipe)
    optimizer.zero_grad()
    loss = loss_of(model, tokens, targets)
    loss.backward()
    norm = nn.utils.clip_grad_norm_(parameters, recipe.clip)
    if not (loss + norm).isfinite():
        raise ValueError(
            f"training broke down at step {step}; expected a finite loss and "
            f"gradient; got {loss.item()} and {norm.item()}: lower the peak"
        )
    optimizer.step()
    return loss.item()


def train(
    model: nn.Module,
    batches: Batches,
    recipe: Recipe,
    *,
    on_step: Callable[[int, list[float]], None] | None = None,
) -> list[float]:
    """Train a model in place; the loss of each step, in nats a target.

    It shows a bar, unless `ATTNBOOK_QUIET` is set.

    Args:
        model: tokens (B, T) → logits (B, T, V). It is left in `eval` mode.
        batches: draws tokens and targets from a generator, and from nothing
            else: (size, generator) → two tensors (size, T), int64.
        on_step: called after each step with the number of steps done and
            the losses so far.
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
            if on_step is not None:
                on_step(step + 1, losses)
    model.eval()
    return losses


def mean_loss(
    model: nn.Module, tokens: Tensor, targets: Tensor, *, batch_size: int = 64
) -> float:
    """The mean loss over many sequences, in nats a target, without dropout.

    Shapes: tokens and targets (N, T), on any device.
    """
    device = next(model.parameters()).device
    total = int((targets >= 0).sum())
    parts = zip(tokens.split(batch_size), targets.split(batch_size))
    with evaluating(model):
        return sum(
            loss_share(model, x.to(device), y.to(device), total).item()
            for x, y in parts
        )


_ONE_AT_A_TIME = threading.RLock()


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """In `eval` mode and without gradients; the mode is restored.

    One thread at a time: the mode is the model's, not a thread's.
    """
    with _ONE_AT_A_TIME, torch.no_grad():
        was_training = model.training
        model.eval()
        try:
            yield
        finally:
            model.train(was_training)
