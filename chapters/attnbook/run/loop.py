"""The training loop of the commands: checkpoints, reports and processes.

Each step is `attnbook.training.update`, as in the book's own loop.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from tqdm import tqdm

from attnbook.batches import Batches
from attnbook.run.checkpoints import Run
from attnbook.run.processes import processes_here, shared_loss
from attnbook.training import loss_share, update


def go_on(
    run: Run,
    batches: Batches,
    checkpoint: Path,
    *,
    resume: bool,
    every: int,
    report: Callable[[Run], None],
) -> None:
    """Train to the last step, with a checkpoint every so many steps.

    It can be killed at any moment and resumed. On a CPU (with as many
    threads) it then ends with the same weights, to the bit, as a run that
    was never stopped. Several processes draw the same batch, and each
    computes its own rows of it.

    Args:
        run: what is trained; its model is in evaluation mode afterwards.
        batches: draws a batch; see `attnbook.batches`.
        checkpoint: where checkpoints are written, one in place of the other.
        resume: go on from the checkpoint that is there.
        every: steps from checkpoint to checkpoint; the last step has one too.
        report: is called after each checkpoint.

    Raises:
        ValueError: a batch that the processes cannot share; a checkpoint of
            another run or a damaged one; a loss that is not finite.
        OSError: a checkpoint that cannot be read or written.
    """
    recipe = run.recipe
    rank, processes = processes_here()
    _check_shares(recipe.batch_size, recipe.accumulation, processes)
    cards = [run.device] if run.device.type == "cuda" else []
    with torch.random.fork_rng(cards):
        torch.manual_seed(recipe.seed + rank)  # its own dropout
        if resume:
            run.resume(checkpoint)
        model: nn.Module = run.model.train()
        if processes > 1:
            model = DistributedDataParallel(model, device_ids=cards or None)
        share = shared_loss if processes > 1 else loss_share
        one = recipe.batch_size * run.model.config.context  # tokens a step
        with tqdm(
            total=recipe.steps * one,
            initial=len(run.losses) * one,
            unit="tok",
            unit_scale=True,
            disable=rank > 0 or "ATTNBOOK_QUIET" in os.environ,
        ) as bar:
            for step in range(len(run.losses), recipe.steps):
                batch = batches(recipe.batch_size, run.generator)
                loss = update(model, run.optimizer, batch, step, recipe, share)
                run.losses.append(loss)
                bar.set_postfix_str(f"loss {loss:.3f}", refresh=False)
                bar.update(one)
                if (step + 1) % every == 0 or step + 1 == recipe.steps:
                    run.save(checkpoint)
                    report(run)
    run.model.eval()


def _check_shares(batch_size: int, pieces: int, processes: int) -> None:
    """Raise a ValueError unless the processes can share each batch evenly.

    Args:
        batch_size: sequences in a batch.
        pieces: the pieces in which a batch is computed (accumulation).
        processes: how many there are.
    """
    if processes > 1 and batch_size % (pieces * processes):
        raise ValueError(
            "the processes cannot share a batch; expected a batch_size that "
            f"is a multiple of {pieces * processes}, the processes times the "
            f"pieces of a batch (accumulation); got {batch_size}"
        )
