"""Training a language model: the recipe, the loop, checkpoints, a command.

`python -m attnbook.training --help` says how to train from a shell.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from numbers import Real
from pathlib import Path
from typing import NamedTuple

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from tqdm import tqdm

from attnbook.gpt import GPT, GPTConfig
from attnbook.run.checkpoints import (
    check_free,
    check_same,
    check_tensors,
    read,
    write,
)
from attnbook.text import Batches, Vocabulary
from attnbook.town import WORDS, Question, Town, encode, vocabulary

#: A target that nothing is asked of.
IGNORED = -100

#: Set (to anything) it keeps progress bars away, wherever the code runs.
QUIET = "ATTNBOOK_QUIET"


@dataclass(frozen=True)
class Recipe:
    """How a model is trained.

    Raises:
        ValueError: a number out of its range.
        TypeError: a value of another type.
    """

    steps: int = 1000  # updates of the weights
    batch_size: int = 32  # sequences a step, over all processes together
    peak: float = 1e-3  # the learning rate when the warm-up is over
    warmup: int = 100  # steps before the one that has the peak
    final: float = 0.1  # the last step's learning rate, as part of the peak
    betas: tuple[float, float] = (0.9, 0.99)  # memory of AdamW's averages
    weight_decay: float = 0.1  # of matrices, see `decay_groups`
    clip: float = 1.0  # the longest gradient that is let through
    seed: int = 0  # of the batches and of dropout

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            kind = {int: int, float: Real, tuple: (tuple, list)}[
                type(one.default)
            ]
            if isinstance(value, bool) or not isinstance(value, kind):
                raise TypeError(
                    f"{one.name} is of the wrong type; expected "
                    f"{type(one.default).__name__}; got {value!r}"
                )
        object.__setattr__(self, "betas", tuple(self.betas))
        ranges = {
            "steps": (self.steps >= 1, "at least 1"),
            "batch_size": (self.batch_size >= 1, "at least 1"),
            "peak": (0 < self.peak < math.inf, "a number above 0"),
            "warmup": (0 <= self.warmup < self.steps, "0 to steps - 1"),
            "final": (0 <= self.final <= 1, "0 to 1"),
            "betas": (
                len(self.betas) == 2 and all(0 <= b < 1 for b in self.betas),
                "two numbers from 0 to below 1",
            ),
            "weight_decay": (0 <= self.weight_decay < math.inf, "at least 0"),
            "clip": (self.clip > 0, "a number above 0"),
            "seed": (0 <= self.seed < 2**63, "at least 0"),
        }
        for name, (holds, expected) in ranges.items():
            if not holds:
                raise ValueError(
                    f"{name} is out of its range; expected {expected}; "
                    f"got {getattr(self, name)}"
                )


#: What `make model` trains, and how.
TOWN_CONFIG = GPTConfig(
    vocab_size=len(WORDS),
    context=Town().longest,
    d_model=64,
    n_heads=4,
    n_layers=2,
    positions="alibi",
    initial_std=0.125,
)
TOWN_RECIPE = Recipe(
    steps=1000, batch_size=16, peak=3e-3, warmup=100, weight_decay=0.01
)
TOWN_DTYPE = "float32"


@dataclass
class History:
    """What happened; entry n of a list belongs to step n, from 0."""

    losses: list[float] = field(default_factory=list)  # nats a target
    rates: list[float] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)  # before clipping
    #: Held-out loss after so many steps.
    held_out: dict[int, float] = field(default_factory=dict)


def learning_rate(step: int, recipe: Recipe) -> float:
    """The learning rate of step 0, 1, …, steps − 1.

    It rises in a straight line, has its peak at step `warmup`, and falls
    along half a cosine to `final` times the peak at the last step.

    Source: the cosine is that of Loshchilov and Hutter (2017),
    arXiv:1608.03983, without restarts.
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
    return [
        {
            "params": [p for p in learned if p.ndim >= 2],
            "weight_decay": weight_decay,
        },
        {"params": [p for p in learned if p.ndim < 2], "weight_decay": 0.0},
    ]


def make_optimizer(model: nn.Module, recipe: Recipe) -> torch.optim.AdamW:
    """AdamW over the `decay_groups`, its averages in place from the start.

    Source: Loshchilov and Hutter (2019), arXiv:1711.05101.
    """
    optimizer = torch.optim.AdamW(
        decay_groups(model, recipe.weight_decay),
        lr=recipe.peak,
        betas=recipe.betas,
    )
    # As torch does at a parameter's first gradient. Done now, a checkpoint
    # holds the same tensors at every step, also of parameters never used.
    for group in optimizer.param_groups:
        for p in group["params"]:
            optimizer.state[p] = {
                "step": torch.tensor(0.0, dtype=torch.float32),
                "exp_avg": torch.zeros_like(p),
                "exp_avg_sq": torch.zeros_like(p),
            }
    return optimizer


def loss_share(logits: Tensor, targets: Tensor, total: int) -> Tensor:
    """What these sequences add to the mean loss of a batch, in nats.

    It is the sum over their targets, divided by the number of targets in
    the whole batch. However the batch is shared out, and however unevenly
    it is padded, the shares and their gradients add up to the whole.

    Shapes: logits (B, T, V), targets (B, T), −100 where nothing is asked.
    """
    summed = F.cross_entropy(
        logits.flatten(0, 1),
        targets.flatten(),
        ignore_index=IGNORED,
        reduction="sum",
    )
    return summed / total


def mean_loss(
    model: nn.Module, tokens: Tensor, targets: Tensor, *, batch_size: int = 64
) -> float:
    """The mean loss over many sequences, in nats a target, without dropout.

    Several processes share the sequences; each gets the mean over all.

    Shapes: tokens and targets (N, T), on any device.
    """
    rank, processes = processes_here()
    device = next(model.parameters()).device
    total = _count_targets(tokens, targets)
    loss = torch.zeros((), dtype=torch.float64, device=device)
    with _measuring(model):
        pairs = zip(
            tokens[rank::processes].split(batch_size),
            targets[rank::processes].split(batch_size),
            strict=True,
        )
        for some, their_targets in pairs:
            if len(some):
                logits = model(some.to(device))
                loss += loss_share(logits, their_targets.to(device), total)
    return _sum_over_processes(loss).item()


def accuracy(model: nn.Module, questions: list[Question]) -> float:
    """How often the answer to a question of the town beats its candidates.

    The model's answer is the candidate with the highest logit after the
    prompt, without dropout.

    Raises:
        ValueError: no questions.
    """
    if not questions:
        raise ValueError(
            "there is nothing to ask; expected at least one question; got none"
        )
    words = vocabulary()
    device = next(model.parameters()).device
    tokens, _ = encode([[*q.prompt, q.answer] for q in questions])
    with _measuring(model):
        logits = model(tokens.to(device)).cpu()  # (N, T, V)
    right = 0
    for row, q in zip(logits, questions):
        last = row[len(q.prompt) - 1]  # (V,): of the word after the prompt
        score = {word: last[words.number(word)] for word in q.candidates}
        right += max(score, key=score.get) == q.answer
    return right / len(questions)


@contextmanager
def _measuring(model):
    """In `eval` mode and without gradients; the mode is restored."""
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(was_training)


def train(
    model: nn.Module,
    batches: Batches,
    recipe: Recipe,
    *,
    held_out: tuple[Tensor, Tensor] | None = None,
    checkpoint: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    every: int = 100,
    vocabulary: Vocabulary | None = None,
    data: str = "",
    on_step: Callable[[int, History], None] | None = None,
    progress: bool | None = None,
) -> History:
    """Train a model in place, on the device and in the type that it has.

    Where `torch.distributed` is initialised, the processes work together:
    each draws the same batch and takes its share of it, so that the losses
    are those of one process. Only the first one writes files.

    A run with a checkpoint can be killed at any moment and resumed; on a CPU
    (with as many threads) it ends with the same weights to the bit as one
    that was never stopped.

    Args:
        model: tokens (B, T) → logits (B, T, V). It is left in `eval` mode.
        batches: draws tokens and targets from a generator, and from nothing
            else: (size, generator) → two tensors (size, T), int64.
        held_out: tokens and targets (N, T), measured every so many steps.
        checkpoint: the file to write every so many steps and at the end.
        resume: go on from the checkpoint, which must be there.
        overwrite: whether a new run may replace a checkpoint.
        every: that many steps, above.
        vocabulary: stored in the checkpoint, for `load_model`.
        data: in words what is trained on; a resumed run must say the same.
        on_step: called after each step with the number of steps done and
            the history so far.
        progress: whether to show a bar on stderr; without it, where a
            person watches and `ATTNBOOK_QUIET` is not set.

    Raises:
        ValueError: batches that do not fit, a loss that is not finite, a
            checkpoint that is corrupt or of another run.
        FileNotFoundError: no checkpoint to resume; no folder to write into.
        FileExistsError: a checkpoint that would be overwritten.
    """
    rank, processes = processes_here()
    if recipe.batch_size % processes:
        raise ValueError(
            "the processes do not divide the batch; expected a batch_size "
            f"that is a multiple of {processes}; got {recipe.batch_size}"
        )
    if isinstance(every, bool) or not isinstance(every, int) or every < 1:
        raise ValueError(
            f"every is no number of steps; expected at least 1; got {every}"
        )
    if resume and checkpoint is None:
        raise ValueError(
            "there is nothing to resume; expected a checkpoint; got None"
        )
    if checkpoint is not None:
        checkpoint = Path(checkpoint)
        check_free(checkpoint, overwrite=overwrite or resume)
    device = next(model.parameters()).device
    run = _Run(model, recipe, vocabulary, data, device)
    with own_random_numbers(device, recipe.seed + rank):
        if resume:
            run.load(checkpoint)
        history = run.history
        wrapped = (
            model
            if processes == 1
            else DistributedDataParallel(
                model, device_ids=[device] if device.type == "cuda" else None
            )
        )
        shown = _somebody_watches() if progress is None else progress
        model.train()
        with tqdm(
            total=recipe.steps,
            initial=len(history.losses),
            unit="step",
            disable=not shown or rank > 0,
        ) as bar:
            for step in range(len(history.losses), recipe.steps):
                batch = batches(recipe.batch_size, run.generator)
                loss, norm = _update(
                    wrapped, run.optimizer, batch, step, recipe
                )
                history.losses.append(loss)
                history.rates.append(learning_rate(step, recipe))
                history.norms.append(norm)
                done = step + 1
                due = done % every == 0 or done == recipe.steps
                if due and held_out is not None:
                    history.held_out[done] = mean_loss(
                        model, *held_out, batch_size=recipe.batch_size
                    )
                bar.set_postfix_str(f"loss {loss:.3f}", refresh=False)
                bar.update()
                if on_step is not None:
                    on_step(done, history)
                if due and checkpoint is not None:
                    # After on_step, which may have drawn random numbers.
                    run.save(checkpoint)
    model.eval()
    return history


def _update(model, optimizer, batch, step, recipe) -> tuple[float, float]:
    """One step: the batch's mean loss, and the gradient's norm unclipped."""
    rank, processes = processes_here()
    tokens, targets = batch
    total = _count_targets(tokens, targets)
    if len(tokens) != recipe.batch_size:
        raise ValueError(
            f"the batch has another size; expected {recipe.batch_size} "
            f"sequences; got {len(tokens)}"
        )
    parameters = [p for g in optimizer.param_groups for p in g["params"]]
    device = parameters[0].device
    for group in optimizer.param_groups:
        group["lr"] = learning_rate(step, recipe)
    optimizer.zero_grad()
    logits = model(tokens[rank::processes].to(device))
    share = loss_share(logits, targets[rank::processes].to(device), total)
    # The processes' gradients are averaged, where a sum is wanted.
    (share * processes).backward()
    norm = nn.utils.clip_grad_norm_(parameters, recipe.clip).item()
    loss = _sum_over_processes(share.detach()).item()
    if not math.isfinite(loss + norm):
        raise ValueError(
            f"training broke down at step {step}; expected a finite loss "
            f"and gradient; got {loss} and {norm}: try a smaller peak"
        )
    optimizer.step()
    return loss, norm


def _count_targets(tokens, targets):
    """How many targets there are; clear errors where they do not fit."""
    if tokens.ndim != 2 or tokens.shape != targets.shape:
        raise ValueError(
            "tokens and targets do not fit; expected (B, T) both; got "
            f"{tuple(tokens.shape)} and {tuple(targets.shape)}"
        )
    total = (targets != IGNORED).sum().item()
    if total == 0:
        raise ValueError(
            "there is nothing to learn; expected at least one target that "
            f"is not {IGNORED}; got none"
        )
    return total


def processes_here() -> tuple[int, int]:
    """The number of this process, and how many there are."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1


def _sum_over_processes(value: Tensor) -> Tensor:
    if processes_here()[1] > 1:
        dist.all_reduce(value)
    return value


def _somebody_watches() -> bool:
    """Whether stderr goes to a terminal or a notebook, and bars may show."""
    notebook = type(sys.stderr).__module__.startswith("ipykernel")
    return QUIET not in os.environ and (notebook or sys.stderr.isatty())


@contextmanager
def own_random_numbers(device, seed):
    """Seeds torch's generators, and leaves them as they were before."""
    cards = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(cards):
        torch.default_generator.manual_seed(seed)
        for card in cards:
            with torch.cuda.device(card):
                torch.cuda.manual_seed(seed)
        yield


class _Run:
    """All that a run needs to go on as if it had never been stopped."""

    def __init__(self, model, recipe, vocabulary, data, device) -> None:
        self.model, self.device = model, device
        self.optimizer = make_optimizer(model, recipe)
        self.generator = torch.Generator().manual_seed(recipe.seed)
        self.history = History()
        self.about = _describe(model, recipe, vocabulary) | {
            "data": data,
            "processes": processes_here()[1],
            "device": device.type,
        }

    def live(self) -> dict[str, Tensor]:
        """The tensors that training changes, under their names on file."""
        tensors = _model_tensors(self.model)
        for name, parameter in self.model.named_parameters():
            for key, tensor in self.optimizer.state.get(parameter, {}).items():
                tensors[f"optimizer.{key}.{name}"] = tensor
        return tensors

    def random_states(self) -> dict[str, Tensor]:
        states = {"cpu": torch.get_rng_state()}
        if self.device.type == "cuda":
            states["cuda"] = torch.cuda.get_rng_state(self.device)
        return states

    def fixed(self, states: list[dict[str, Tensor]]) -> dict[str, Tensor]:
        """The generators of all processes and the history, as tensors."""
        h, steps = self.history, range(1, len(self.history.losses) + 1)
        held_out = [h.held_out.get(step, math.nan) for step in steps]
        columns = {
            "losses": h.losses,
            "rates": h.rates,
            "norms": h.norms,
            "held_out": held_out,
        }
        return {
            "generator.batches": self.generator.get_state(),
            **{
                f"generator.{kind}.{rank}": state
                for rank, one in enumerate(states)
                for kind, state in one.items()
            },
            **{
                f"history.{name}": torch.tensor(column, dtype=torch.float64)
                for name, column in columns.items()
            },
        }

    def save(self, path: Path) -> None:
        rank, processes = processes_here()
        states = [self.random_states()] * processes
        if processes > 1:
            dist.all_gather_object(states, states[0])
        if rank == 0:
            tensors = self.live() | self.fixed(states)
            steps = len(self.history.losses)
            write(path, tensors, self.about | {"steps_done": steps})

    def load(self, path: Path) -> None:
        """Raises for a file that does not fit, before anything is changed."""
        rank, processes = processes_here()
        stored, about = read(path)
        steps = about.pop("steps_done", None)
        if steps is None:
            raise ValueError(
                f"{path} cannot be resumed; expected a checkpoint; got a "
                "finished model"
            )
        check_same(path, self.about, about)
        live = self.live()
        fixed = self.fixed([self.random_states()] * processes)
        column = torch.empty(steps, dtype=torch.float64)
        columns = {n: column for n in fixed if n.startswith("history.")}
        check_tensors(path, live | fixed | columns, stored)
        for name, tensor in live.items():
            with torch.no_grad():
                tensor.copy_(stored[name])
        self.generator.set_state(stored["generator.batches"])
        torch.set_rng_state(stored[f"generator.cpu.{rank}"])
        if self.device.type == "cuda":
            state = stored[f"generator.cuda.{rank}"]
            torch.cuda.set_rng_state(state, self.device)
        losses, rates, norms, held_out = (
            stored[f"history.{name}"].tolist()
            for name in ("losses", "rates", "norms", "held_out")
        )
        measured = {
            step: loss
            for step, loss in enumerate(held_out, start=1)
            if not math.isnan(loss)
        }
        self.history = History(losses, rates, norms, measured)


class Trained(NamedTuple):
    """What `load_model` finds in a file."""

    model: GPT
    vocabulary: Vocabulary | None
    recipe: Recipe
    note: str


def save_model(
    path: str | Path,
    model: GPT,
    vocabulary: Vocabulary | None,
    recipe: Recipe,
    *,
    note: str = "",
    overwrite: bool = False,
) -> None:
    """Write a finished model, in float32, without what training needed.

    Raises:
        FileNotFoundError: no folder to write into.
        FileExistsError: a file that would be overwritten.
    """
    check_free(path, overwrite=overwrite)
    tensors = {n: t.float() for n, t in _model_tensors(model).items()}
    about = _describe(model, recipe, vocabulary)
    write(Path(path), tensors, about | {"note": note})


def load_model(path: str | Path) -> Trained:
    """A model from a file of `save_model`, or from a checkpoint.

    It comes on the CPU, in `eval` mode, in the type that it was stored in.

    Raises:
        ValueError: a file that is corrupt, or of something else.
        FileNotFoundError: no file.
    """
    path = Path(path)
    stored, about = read(path)
    try:
        config = GPTConfig(**about["config"])
        recipe = Recipe(**about["recipe"])
        words = about["vocabulary"]
        vocabulary = None if words is None else Vocabulary(words)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{path} does not describe a model; expected a GPTConfig, a "
            f"Recipe and a vocabulary; got {error}"
        ) from error
    tensors = {n: t for n, t in stored.items() if n.startswith("model.")}
    with torch.device("meta"):  # sizes without numbers
        model = GPT(config)
    if tensors:
        model.to(next(iter(tensors.values())).dtype)
    expected = _model_tensors(model)
    is_checkpoint = "steps_done" in about
    check_tensors(path, expected, tensors if is_checkpoint else stored)
    model.load_state_dict(
        {name.removeprefix("model."): t for name, t in tensors.items()},
        assign=True,
    )
    return Trained(model.eval(), vocabulary, recipe, about.get("note", ""))


def _model_tensors(model):
    return {f"model.{n}": t for n, t in model.state_dict().items()}


def _describe(model, recipe, vocabulary):
    config = getattr(model, "config", None)
    about = {
        "config": None if config is None else asdict(config),
        "recipe": asdict(recipe),
        "vocabulary": None if vocabulary is None else list(vocabulary),
    }
    return json.loads(json.dumps(about))  # as it will be read: no tuples


if __name__ == "__main__":
    from attnbook.run.command import main

    sys.exit(main())
