"""Training: what is fixed beforehand, one step of it, and the loop.

A `Recipe` has all that can be chosen. `update` makes one step: the loss of a
batch, its gradients, and one change of the weights. `train` calls it until the
recipe's steps are done.
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

from attnbook.batches import Batches
from attnbook.config import check_fields, option
from attnbook.values import whole

#: Types that the layers of a model can compute in while it is trained.
PRECISIONS = ("float32", "bfloat16")

#: Held while a model is evaluated: its mode belongs to the model, so two
#: threads that evaluate one model would change it under each other.
_ONE_AT_A_TIME = threading.RLock()


@dataclass(frozen=True)
class Recipe:
    """How a model is trained.

    A step is one update of the weights. It may be computed in pieces
    (`accumulation`), whose gradients add up to that of the whole batch; the
    schedule of the learning rate counts steps, not pieces.

    Raises:
        TypeError, ValueError: a field of another type, or out of its range.
    """

    steps: int = option(1000, "updates of the weights", at_least=1)
    batch_size: int = option(32, "sequences for each update", at_least=1)
    peak: float = option(1e-3, "highest learning rate", above=0)
    warmup: int = option(100, "steps before the peak", at_least=0)
    final: float = option(
        0.1,
        "last learning rate, as a share of the peak",
        at_least=0,
        at_most=1,
    )
    betas: tuple[float, float] = option(
        (0.9, 0.99), "AdamW's two decay rates", at_least=0, below=1
    )
    weight_decay: float = option(
        0.1, "AdamW's weight decay, for matrices only", at_least=0
    )
    clip: float = option(
        1.0, "a longer gradient is shortened to this", above=0
    )
    seed: int = option(0, "of all that is drawn", at_least=0, below=2**62)
    accumulation: int = option(
        1, "pieces in which a batch is computed, to save memory", at_least=1
    )
    precision: str = option(
        "float32", "of what layers compute; weights stay", choices=PRECISIONS
    )

    def __post_init__(self) -> None:
        check_fields(self)
        whole("warmup", self.warmup, below=self.steps)
        whole("accumulation", self.accumulation, at_most=self.batch_size)


def learning_rate(step: int, recipe: Recipe) -> float:
    """The learning rate of a step, counted from 0.

    It rises in a straight line to the peak, which is the rate of step
    `warmup`, and then falls along half a cosine to `final` times the peak,
    which is the rate of the last step. Whoever trains longer than planned
    stays there.

    Source: Loshchilov and Hutter (2017), arXiv:1608.03983, no restarts.
    """
    if step < recipe.warmup:
        return recipe.peak * (step + 1) / (recipe.warmup + 1)
    falling = max(1, recipe.steps - 1 - recipe.warmup)  # steps on the way
    progress = min(1.0, (step - recipe.warmup) / falling)
    height = (1 + math.cos(math.pi * progress)) / 2  # 1 → 0
    return recipe.peak * (recipe.final + (1 - recipe.final) * height)


def make_optimizer(model: nn.Module, recipe: Recipe) -> torch.optim.AdamW:
    """AdamW for all parameters of a model, with decay for matrices alone.

    Decay pulls weights to 0. Biases and the weights of norms, whose resting
    place is 1, are left out.

    Source: Loshchilov and Hutter (2017), arXiv:1711.05101.
    """
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    others = [p for p in model.parameters() if p.ndim < 2]
    groups = [
        {"params": matrices, "weight_decay": recipe.weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=recipe.peak, betas=recipe.betas)


def loss_share(
    model: nn.Module,
    tokens: Tensor,
    targets: Tensor,
    segments: Tensor | None = None,
    *,
    total: int | None = None,
) -> Tensor:
    """What some sequences add to a mean loss, in nats.

    It is the sum of their losses over `total`, so the shares of several
    pieces add up to the mean over all of them, however unequal they are.

    Args:
        tokens, targets: (B, T). Targets of −100 do not count.
        segments: (B, T), for packed texts; see `attnbook.batches.pack`.
        total: targets that count, in all pieces together. If not given, the
            number of those that count here, which makes it a mean.

    Returns:
        A tensor without axes, float32 or wider also where the model computes
        in half precision.
    """
    device = next(model.parameters()).device
    targets = targets.to(device).flatten()  # (B·T,)
    if segments is None:
        logits = model(tokens.to(device))  # (B, T, V)
    else:
        logits = model(tokens.to(device), segments=segments.to(device))
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    summed = F.cross_entropy(logits.flatten(0, 1), targets, reduction="sum")
    if total is None:
        total = n_targets(targets)
    return summed / total


def n_targets(targets: Tensor) -> int:
    """How many targets count in a loss.

    A target of −100 does not: at padding, for instance, there is no token to
    be predicted.
    """
    return int((targets >= 0).sum())


def update(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batch: tuple[Tensor, ...],
    step: int,
    recipe: Recipe,
    loss_of: Callable[..., Tensor] = loss_share,
) -> float:
    """Make one step: change the weights once, and return the loss.

    With the recipe's precision "bfloat16" the layers compute in 16 bits
    (torch's autocast), while the weights, the gradients that are added up,
    and what AdamW keeps stay in 32. bfloat16 has the range of float32, so
    the loss need not be scaled up, as it must be for float16.

    Args:
        batch: tokens, targets, and segments if the texts are packed, (B, T).
        step: its number, from 0 on, for the learning rate.
        loss_of: computes the share of a piece of the batch; see `loss_share`.

    Returns:
        The mean loss over the batch before the step, in nats a target.

    Raises:
        ValueError: a loss or a gradient that is not finite. The weights stay
            as they were.
    """
    for group in optimizer.param_groups:
        group["lr"] = learning_rate(step, recipe)
    parameters = [p for g in optimizer.param_groups for p in g["params"]]
    optimizer.zero_grad()
    device = parameters[0].device.type
    half = recipe.precision == "bfloat16"
    total = n_targets(batch[1])
    loss = torch.zeros((), device=device)
    # Tokens, targets and segments are cut between the same rows.
    pieces = zip(*(part.tensor_split(recipe.accumulation) for part in batch))
    for piece in pieces:
        with torch.autocast(device, torch.bfloat16, enabled=half):
            share = loss_of(model, *piece, total=total)
        share.backward()  # gradients add up
        loss = loss + share.detach()
    norm = nn.utils.clip_grad_norm_(parameters, recipe.clip)
    if not (loss + norm).isfinite():
        raise ValueError(
            f"the loss or the gradient of step {step} is not finite; expected "
            f"finite numbers; got a loss of {loss.item():.4g} and a gradient "
            f"of length {norm.item():.4g}. The weights stay as they were. If "
            "the loss has grown before, try a lower learning rate than the "
            f"peak of {recipe.peak:g}"
        )
    optimizer.step()
    return loss.item()


def train(
    model: nn.Module,
    batches: Batches,
    recipe: Recipe,
    *,
    on_step: Callable[[int, list[float]], object] = lambda done, losses: None,
) -> list[float]:
    """Train a model in place, and return the loss of each step.

    A bar on the standard error stream shows how far it is, unless the
    environment variable `ATTNBOOK_QUIET` is set. The caller's random numbers
    stay as they were; the model is in evaluation mode afterwards.

    Args:
        batches: draws a batch; see `attnbook.batches`.
        on_step: is called after each step with the number of steps done and
            the losses so far.

    Returns:
        The mean loss of each step's batch, in nats a target.

    Raises:
        ValueError: a loss or a gradient that is not finite; see `update`.
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
    """The mean loss over sequences (N, T), in nats a target.

    Dropout is off. `batch_size` sequences are computed at a time, which
    changes the memory that is needed and not the result.
    """
    total = n_targets(targets)
    parts = zip(tokens.split(batch_size), targets.split(batch_size))
    with evaluating(model):
        return sum(
            loss_share(model, x, y, total=total).item() for x, y in parts
        )


@contextmanager
def evaluating(model: nn.Module) -> Iterator[nn.Module]:
    """Put a model into evaluation mode, without gradients, for a while.

    Its mode is restored afterwards. Other threads that evaluate a model wait
    until this one has finished.
    """
    with _ONE_AT_A_TIME, torch.no_grad():
        was_training = model.training
        try:
            yield model.eval()
        finally:
            model.train(was_training)
