"""The command `python -m attnbook TEXT`: train on a text, from a shell."""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, fields
from pathlib import Path

import torch
from torch import Tensor
from tqdm import tqdm

from attnbook.batches import windows
from attnbook.files import shown
from attnbook.generate import Sampling, complete
from attnbook.gpt import GPT, GPTConfig
from attnbook.pretrained import load_model, save_model
from attnbook.run.checkpoints import Run
from attnbook.run.loop import go_on
from attnbook.run.options import (
    PROGRAM,
    TEXT_CONFIG,
    chosen,
    training_options,
)
from attnbook.run.places import check_place, reserved
from attnbook.run.processes import joined, processes_here, usable_device
from attnbook.text import tiny_shakespeare
from attnbook.training import Recipe, evaluating, mean_loss
from attnbook.values import whole
from attnbook.vocabulary import Vocabulary


def main(arguments: list[str] | None = None) -> int:
    """Run the command, and return its exit code.

    It is 0 if all went well, and 130 if Ctrl-C stopped the training. It is 2
    for an error that the user can mend, of which one line is printed.

    Args:
        arguments: what was typed after the command's name; those of this
            process if not given.
    """
    print_anything()
    options = training_options(arguments)
    name = options.out.stem + ".checkpoint.safetensors"
    checkpoint = options.out.parent / name
    code = 2
    try:
        _train_as_asked(options, checkpoint)
        return 0
    except (ValueError, TypeError, OSError, MemoryError) as error:
        why = str(error)
    except torch.OutOfMemoryError as error:  # a card's
        why = str(error).splitlines()[0]
    except KeyboardInterrupt:
        code = 130
        why = "stopped; no checkpoint was written yet"
        if checkpoint.exists():
            why = f"stopped; --resume goes on from {checkpoint}"
    if processes_here()[0] == 0:
        print(f"{PROGRAM}: {why}", file=sys.stderr)
    return code


def print_anything() -> None:
    """Print characters that the terminal's encoding lacks as escapes.

    Without this such a character in a text would end the program.
    """
    with suppress(AttributeError):  # a notebook's stream shows all
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore


def _train_as_asked(options: argparse.Namespace, checkpoint: Path) -> None:
    """Read the text, make the model, train it and write it.

    Under torchrun every process does this, and only the first one writes.

    Args:
        options: what the user has chosen. The sizes that follow from the text
            are added to it.
        checkpoint: the path of the checkpoint.
    """
    if options.warmup is None:
        options.warmup = options.steps // 20
    recipe = chosen(options, Recipe)
    whole("every", options.every, at_least=1)
    whole("sample", options.sample, at_least=0)
    text = read_text(options.text)
    _check_places(options, checkpoint)
    device = usable_device(options.device)
    model, vocabulary, origin = _model_for(text, options, recipe, device)
    numbers = torch.tensor(vocabulary.encode(text))  # (N,)
    n_kept = len(numbers) - len(numbers) // 10  # the last tenth is held out
    context = model.config.context
    _check_length(options.text, len(numbers), n_kept, context)
    batches = windows(numbers[:n_kept], context)
    data = f"a text with sha256 {hashlib.sha256(text.encode()).hexdigest()}"
    run = Run(model, recipe, vocabulary, data + origin)
    report = _reporter(vocabulary, numbers[n_kept:], options.sample)

    def train() -> None:
        go_on(
            run,
            batches,
            checkpoint,
            resume=options.resume,
            every=options.every,
            report=report,
        )

    _write_model(run, vocabulary, options, checkpoint, train)


def _write_model(
    run: Run,
    vocabulary: Vocabulary,
    options: argparse.Namespace,
    checkpoint: Path,
    train: Callable[[], None],
) -> None:
    """Train a run and write its model, while nobody else may write there."""
    first = processes_here()[0] == 0
    with ExitStack() as stack:
        for path in (options.out, checkpoint) if first else ():
            stack.enter_context(reserved(path))
        stack.enter_context(joined(run.device))
        if options.resume and options.out.exists() and not options.overwrite:
            _check_finished(run, checkpoint, options.out)
            print(
                f"the run has made all its {run.recipe.steps} steps, and "
                f"{options.out} is its model: nothing is left to do"
            )
            return
        train()
        if first:
            about = {"recipe": asdict(run.recipe), "data": run.about["data"]}
            save_model(options.out, run.model, vocabulary, about=about)
            print(f"wrote {options.out}")


def read_text(path: Path | None) -> str:
    """Read the text to train on, or Tiny Shakespeare if no path is given.

    A byte order mark, with which some editors begin a file, is left out.

    Raises:
        FileNotFoundError: no such file.
        ValueError: a folder, a file that is empty or not of UTF-8.
    """
    if path is None:
        return tiny_shakespeare()
    if path.is_dir():
        raise ValueError(f"{path} is a folder; expected a file of plain text")
    if not path.exists():
        raise FileNotFoundError(
            f"there is no file {path}; expected one of plain text in UTF-8"
        )
    try:
        text = path.read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path} is no text; expected UTF-8; got {error}"
        ) from None
    if not text:
        raise ValueError(f"{path} is empty; expected a text to train on")
    return text


def _check_places(options: argparse.Namespace, checkpoint: Path) -> None:
    """Raise unless the finished model and the checkpoint may be written.

    Raises:
        FileNotFoundError: there is no folder for them.
        FileExistsError: a file that exists must not be replaced.
    """
    # With --resume a file may be there already: `_check_finished` looks at it
    # once the run has been loaded.
    check_place(
        options.out,
        options.text,
        replace=options.overwrite or options.resume,
        instead="--overwrite replaces it, --out chooses another name",
    )
    check_place(
        checkpoint,
        options.text,
        replace=options.overwrite or options.resume,
        instead="--resume goes on from it, --overwrite begins anew in its "
        "place, --out chooses another name",
    )


def _check_length(
    path: Path | None, n: int, n_kept: int, context: int
) -> None:
    """Raise a ValueError for a text that is too short for the context.

    If the held-out tenth alone is too short, a line says that its loss will
    not be measured.

    Args:
        path: the file of the text, for the messages.
        n: characters of the text.
        n_kept: how many of them are trained on.
        context: the model's context.
    """
    name = path or "the text"
    if n_kept <= context:
        raise ValueError(
            f"{name} is too short: of its {n} characters the last "
            f"{n - n_kept} are held out to measure the loss; expected more "
            f"than {context} in the rest, which is the model's context "
            f"(--context); got {n_kept}"
        )
    if n - n_kept <= context and processes_here()[0] == 0:
        print(
            f"the held-out tenth of {name} has {n - n_kept} characters, not "
            f"more than the context's {context}: its loss is not measured"
        )


def _model_for(
    text: str,
    options: argparse.Namespace,
    recipe: Recipe,
    device: torch.device,
) -> tuple[GPT, Vocabulary, str]:
    """The model that is trained, with its vocabulary and its origin.

    Returns:
        the model, new or a finished one; the vocabulary of its tokens; and
        where the model comes from, in words that are kept in the checkpoint
        (empty for a new one).
    """
    if options.start_from is not None:
        return _started_from(text, options, recipe, device)
    vocabulary = Vocabulary.of_characters(text)
    options.vocab_size = len(vocabulary)
    config = chosen(options, GPTConfig)
    check_head_width(config)
    _check_memory(config, recipe, device)
    with torch.random.fork_rng([]):
        torch.default_generator.manual_seed(recipe.seed)
        model = GPT(config).to(device)
    return model, vocabulary, ""


def _started_from(
    text: str,
    options: argparse.Namespace,
    recipe: Recipe,
    device: torch.device,
) -> tuple[GPT, Vocabulary, str]:
    """A finished model to train on, as `_model_for` returns it.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is no model with a vocabulary, the text has
            characters that the model does not know, or an option asks for
            other sizes than the model's.
        MemoryError: the training does not fit into memory.
    """
    path = options.start_from
    model, vocabulary = load_with_vocabulary(path)
    unknown = sorted(set(text) - set(vocabulary))
    if unknown:
        raise ValueError(
            f"{path} does not know all characters of the text; expected those "
            f"that it was trained on; got {shown(''.join(unknown))} besides"
        )
    for field in fields(GPTConfig):
        if field.name == "vocab_size":
            continue
        asked = getattr(options, field.name)
        its_own = getattr(model.config, field.name)
        if asked not in (getattr(TEXT_CONFIG, field.name), its_own):
            name = field.name.replace("_", "-")
            raise ValueError(
                f"a model keeps its sizes when it is trained on; expected no "
                f"--{name}, or {its_own} as in {path}; got {asked}"
            )
    _check_memory(model.config, recipe, device)
    weights = hashlib.sha256(path.read_bytes()).hexdigest()
    return model.to(device), vocabulary, f", from a model of sha256 {weights}"


def load_with_vocabulary(path: Path) -> tuple[GPT, Vocabulary]:
    """Load a model that was trained on texts, with its vocabulary.

    Raises:
        FileNotFoundError, ValueError: what `load_model` refuses, or a file
            without a vocabulary.
    """
    model, vocabulary, _ = load_model(path)
    if vocabulary is None:
        raise ValueError(
            f"{path} has no vocabulary; expected a model that `{PROGRAM}` has "
            "trained on a text"
        )
    return model, vocabulary


def check_head_width(config: GPTConfig) -> None:
    """Raise a ValueError if rotary positions cannot turn the heads.

    They turn pairs of numbers, so a head's width must be even. The message is
    in terms of the command's options.
    """
    width = config.d_model // config.n_heads
    if config.positions == "rotary" and width % 2:
        raise ValueError(
            f"--d-model {config.d_model} shared by --n-heads {config.n_heads} "
            f"gives heads of width {width}; expected an even width, since "
            "rotary positions turn pairs of numbers (--positions)"
        )


def _check_finished(run: Run, checkpoint: Path, out: Path) -> None:
    """Raise a FileExistsError unless a file is the model of a finished run.

    Args:
        run: the run. It is resumed for this, and is at its end then.
        checkpoint: the checkpoint of the run.
        out: the file, which must have the same weights.
    """
    with _randoms_kept(run):
        run.resume(checkpoint)
    state = run.model.state_dict()
    if len(run.losses) == run.recipe.steps:
        found = load_model(out).model.state_dict()
        if state.keys() == found.keys() and all(
            torch.equal(state[name].cpu(), found[name]) for name in state
        ):
            return
    raise FileExistsError(
        f"{out} exists and is not the model of this run, which has made "
        f"{len(run.losses)} of its {run.recipe.steps} steps; expected a name "
        "that is free: --overwrite lets the run replace it when it is done"
    )


@contextmanager
def _randoms_kept(run: Run) -> Iterator[None]:
    """A context in which random numbers can be drawn without a trace.

    At its end torch's generators have the states that they had at its
    beginning. So a report that lets the model write does not change the
    training.
    """
    cards = [run.device] if run.device.type == "cuda" else []
    with torch.random.fork_rng(cards):
        yield


def _reporter(
    vocabulary: Vocabulary, rest: Tensor, length: int
) -> Callable[[Run], None]:
    """Make a function that prints how a run is going.

    It prints the step and the loss, the loss on held-out text, and something
    that the model writes.

    Args:
        vocabulary: of the model's tokens.
        rest: the held-out tokens, (N,). If they are no more than a context, no
            loss is measured on them.
        length: how many characters the model writes; 0 for none.
    """
    prompt = vocabulary.encode(first_prompt(vocabulary))
    sampling = Sampling(temperature=0.8)

    def report(run: Run) -> None:
        if processes_here()[0] > 0:
            return
        line = f"step {len(run.losses)}: loss {run.losses[-1]:.4f}"
        context = run.model.config.context
        if len(rest) > context:
            generator = torch.Generator().manual_seed(1)
            tokens, targets = windows(rest, context)(256, generator)
            line += f", held out {mean_loss(run.model, tokens, targets):.4f}"
        tqdm.write(line)
        if length:
            with evaluating(run.model):
                [new] = complete(
                    run.model, [prompt], length, sampling=sampling
                )
            tqdm.write("  " + repr(vocabulary.decode(new)))

    return report


def first_prompt(vocabulary: Vocabulary) -> str:
    """The text that a model goes on from when the user gives none.

    It is a new line if the model knows that character, since writing then
    begins at the beginning of a line; else the first of its characters.
    """
    return "\n" if "\n" in vocabulary else vocabulary[0]


def _check_memory(
    config: GPTConfig, recipe: Recipe, device: torch.device
) -> None:
    """Raise if a run surely needs more memory than there is.

    A parameter takes four numbers of four bytes: itself, its gradient, and
    two averages. A token takes its logits and ten vectors in each block.

    Raises:
        MemoryError: with both numbers of bytes.
    """
    there = float("inf")  # Windows does not say how much there is
    if device.type == "cuda":
        there = torch.cuda.get_device_properties(device).total_memory
    elif hasattr(os, "sysconf"):
        there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    a_token = config.vocab_size + 10 * config.n_layers * config.d_model
    tokens = recipe.batch_size * config.context
    at_once = tokens // (recipe.accumulation * processes_here()[1])
    needed = 4 * (4 * config.parameter_count() + at_once * a_token)
    if needed > there:
        raise MemoryError(
            f"the run does not fit into memory; expected at most {there:.3g} "
            f"bytes; got sizes and a batch_size that take {needed:.3g}. A "
            "smaller --batch-size, or more pieces (--accumulation), need less"
        )
