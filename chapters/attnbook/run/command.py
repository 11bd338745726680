"""The command `python -m attnbook`: train on a text, from a shell."""

import argparse
import hashlib
import os
import sys
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from attnbook.batches import windows
from attnbook.generate import Sampling, complete
from attnbook.gpt import GPT, GPTConfig
from attnbook.pretrained import save_model
from attnbook.run.checkpoints import Run
from attnbook.run.loop import go_on
from attnbook.run.places import check_place, reserved
from attnbook.run.processes import joined, processes_here, usable_device
from attnbook.text import tiny_shakespeare
from attnbook.training import Recipe, evaluating, mean_loss
from attnbook.values import whole
from attnbook.vocabulary import Vocabulary

PROGRAM = "python -m attnbook"

#: What a text is trained with; benchmarks/shakespeare.py measures it.
TEXT_CONFIG = GPTConfig(
    context=128,
    d_model=64,
    n_heads=4,
    n_layers=4,
    bias=False,
    positions="rotary",
    activation="swiglu",
    norm="rms",
    initial_std=0.08,
)
TEXT_RECIPE = Recipe(steps=2000, batch_size=12, peak=8e-3, final=0.0)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        self.exit(2, f"{self.prog}: {message}\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog=PROGRAM,
        description="Train a small GPT on the characters of a text. The "
        "warm-up takes a twentieth of the steps, if no number is given.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("text", type=Path, nargs="?", help="of UTF-8")
    source.add_argument(
        "--shakespeare", action="store_true", help="Tiny Shakespeare instead"
    )
    out = Path("model.safetensors")
    add("--out", type=Path, default=out, help="the finished model")
    add("--resume", action="store_true", help="go on from the checkpoint")
    add("--overwrite", action="store_true", help="replace files that exist")
    add("--every", type=int, default=250, help="steps from report to report")
    add("--sample", type=int, default=64, help="characters in a report")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    add("--device", default=device, help="cpu, cuda or cuda:N")
    for title, given in (("model", TEXT_CONFIG), ("recipe", TEXT_RECIPE)):
        group = parser.add_argument_group(title)
        for one in fields(given):
            if one.name != "vocab_size":  # the text's
                name, value = one.name, getattr(given, one.name)
                group.add_argument(
                    "--" + name.replace("_", "-"),
                    default=None if name == "warmup" else value,
                    help=one.metadata["help"],
                    **_kind(value),
                )
    return parser


def _kind(value: Any) -> dict[str, Any]:
    """How an option like this value is read."""
    if isinstance(value, bool):
        return {"action": argparse.BooleanOptionalAction}
    if isinstance(value, tuple):
        return {"type": float, "nargs": len(value), "metavar": "FLOAT"}
    kind = int if value is None else type(value)
    return {"type": kind, "metavar": kind.__name__.upper()}


def main(arguments: list[str] | None = None) -> int:
    """The command; its exit code: 0, or 2 for what the user must mend."""
    with suppress(AttributeError):  # a notebook's stream shows all
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore
    options = _parser().parse_args(arguments)
    name = options.out.stem + ".checkpoint.safetensors"
    checkpoint, code = options.out.parent / name, 2
    try:
        _train_as_asked(options, checkpoint)
        return 0
    except UnicodeDecodeError as error:
        why = f"{options.text} is no text; expected UTF-8; got {error}"
    except (ValueError, TypeError, OSError, MemoryError) as error:
        why = str(error)
    except torch.OutOfMemoryError as error:  # a card's
        why = str(error).splitlines()[0]
    except KeyboardInterrupt:
        why, code = "stopped; no checkpoint was written yet", 130
        if checkpoint.exists():
            why = f"stopped; --resume goes on from {checkpoint}"
    if processes_here()[0] == 0:
        print(f"{PROGRAM}: {why}", file=sys.stderr)
    return code


def _train_as_asked(options: argparse.Namespace, checkpoint: Path) -> None:
    """What the command does, once in each process."""
    if options.warmup is None:
        options.warmup = options.steps // 20
    given = vars(options)
    recipe = Recipe(**{f.name: given[f.name] for f in fields(Recipe)})
    whole("every", options.every, at_least=1)
    whole("sample", options.sample, at_least=0)
    path, may = options.text, options.overwrite
    check_place(options.out, path, replace=may)
    check_place(checkpoint, path, replace=may or options.resume)
    device = usable_device(options.device)
    text = path.read_text("utf-8") if path else tiny_shakespeare()
    vocabulary = Vocabulary.of_characters(text)
    options.vocab_size = len(vocabulary)
    config = GPTConfig(**{f.name: given[f.name] for f in fields(GPTConfig)})
    numbers = torch.tensor(vocabulary.encode(text))  # (N,)
    kept = len(numbers) - len(numbers) // 10  # the last tenth is held out
    batches = windows(numbers[:kept], config.context)
    _check_memory(config, recipe, device)
    first = processes_here()[0] == 0
    with ExitStack() as stack:
        for path in (options.out, checkpoint) if first else ():
            stack.enter_context(reserved(path))
        stack.enter_context(joined(device))
        with torch.random.fork_rng([]):
            torch.default_generator.manual_seed(recipe.seed)
            model = GPT(config).to(device)
        checksum = hashlib.sha256(text.encode()).hexdigest()
        run = Run(model, recipe, vocabulary, f"a text with sha256 {checksum}")
        report = _reporter(vocabulary, numbers[kept:], options.sample)
        how = {"resume": options.resume, "every": options.every}
        go_on(run, batches, checkpoint, **how, report=report)
        if first:
            about = {"recipe": asdict(recipe), "data": run.about["data"]}
            save_model(options.out, model, vocabulary, about=about)
            print(f"wrote {options.out}")


def _reporter(
    vocabulary: Vocabulary, rest: Tensor, length: int
) -> Callable[[Run], None]:
    """Says how a run stands: its losses, and what the model writes."""
    start = "\n" if "\n" in vocabulary else vocabulary[0]
    prompt, how = vocabulary.encode(start), Sampling(temperature=0.8)

    def report(run: Run) -> None:
        if processes_here()[0] > 0:
            return
        line = f"step {len(run.losses)}: loss {run.losses[-1]:.4f}"
        context = run.model.config.context
        if len(rest) > context:
            generator = torch.Generator().manual_seed(1)
            others = windows(rest, context)(256, generator)
            line += f", held out {mean_loss(run.model, *others):.4f}"
        tqdm.write(line)
        if length:
            with evaluating(run.model):
                [new] = complete(run.model, [prompt], length, sampling=how)
            tqdm.write("  " + repr(vocabulary.decode(new)))

    return report


def _check_memory(config: GPTConfig, recipe: Recipe, device: torch.device):
    """Raise if a run surely needs more memory than there is.

    A parameter takes four numbers of four bytes: itself, its gradient, and
    two averages. A token takes its logits and ten vectors in each block.
    """
    there = float("inf")  # as far as Windows tells
    if device.type == "cuda":
        there = torch.cuda.get_device_properties(device).total_memory
    elif hasattr(os, "sysconf"):
        there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    a_token = config.vocab_size + 10 * config.n_layers * config.d_model
    tokens = recipe.batch_size * config.context // processes_here()[1]
    needed = 4 * (4 * config.parameter_count() + tokens * a_token)
    if needed > there:
        raise MemoryError(
            f"the run does not fit into memory; expected at most {there:.3g} "
            f"bytes; got sizes and a batch_size that take {needed:.3g}"
        )
