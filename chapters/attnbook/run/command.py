"""The command `python -m attnbook`: train on a text, from a shell."""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from attnbook.config import whole
from attnbook.generate import Sampling, complete
from attnbook.gpt import GPT, GPTConfig
from attnbook.pretrained import save_model
from attnbook.run.checkpoints import Run
from attnbook.run.loop import go_on
from attnbook.run.places import check_places, reserved
from attnbook.run.processes import joined, processes_here, usable_device
from attnbook.text import Batches, Vocabulary, tiny_shakespeare, windows
from attnbook.training import Recipe, evaluating, mean_loss

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
        description="Train a small GPT on the characters of a text. Under "
        "torchrun several processes share each batch. The warm-up takes a "
        "twentieth of the steps, if no other number is given.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add, one_file = parser.add_argument, {"type": Path, "metavar": "FILE"}
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("text", type=Path, nargs="?", help="of UTF-8")
    source.add_argument(
        "--shakespeare", action="store_true", help="Tiny Shakespeare instead"
    )
    out = Path("model.safetensors")
    add("--out", default=out, help="the finished model", **one_file)
    add("--checkpoint", help="what --resume needs; else beside it", **one_file)
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
                _add_option(group, one, getattr(given, one.name))
    parser.set_defaults(warmup=None)
    return parser


def _add_option(group, field, value):
    """An option for one field of a dataclass, and its default."""
    kind = int if value is None else type(value)
    how: dict[str, Any] = {"type": kind, "metavar": kind.__name__.upper()}
    if kind is bool:
        how = {"action": argparse.BooleanOptionalAction}
    elif kind is tuple:
        how = {"type": float, "nargs": len(value), "metavar": "FLOAT"}
    name = "--" + field.name.replace("_", "-")
    help_text = field.metadata.get("help", "")
    group.add_argument(name, default=value, help=help_text, **how)


def main(arguments: list[str] | None = None) -> int:
    """The command; its exit code: 0, or 2 for what the user must mend."""
    options = _parser().parse_args(arguments)
    if options.checkpoint is None:
        name = options.out.stem + ".checkpoint.safetensors"
        options.checkpoint = options.out.parent / name
    try:
        _train_as_asked(options)
    except (ValueError, TypeError, OSError, MemoryError) as error:
        return _refuse(error, 2)
    except torch.OutOfMemoryError as error:  # a card's
        return _refuse(str(error).splitlines()[0], 2)
    except KeyboardInterrupt:
        there = options.checkpoint.exists()
        return _refuse(
            f"stopped; --resume goes on from {options.checkpoint}"
            if there
            else "stopped; no checkpoint was written yet",
            130,
        )
    return 0


def _refuse(why: object, code: int) -> int:
    if processes_here()[0] == 0:
        print(f"{PROGRAM}: {why}", file=sys.stderr)
    return code


def _train_as_asked(options: argparse.Namespace) -> None:
    """What the command does, once in each process."""
    if options.warmup is None:
        options.warmup = options.steps // 20
    recipe = Recipe(**_fields(Recipe, options))
    whole("every", options.every, at_least=1)
    whole("sample", options.sample, at_least=0)
    written = {"--out": options.out, "--checkpoint": options.checkpoint}
    may = set(written) if options.overwrite else set()
    may |= {"--checkpoint"} if options.resume else set()
    check_places(written, options.text, may)
    device = usable_device(options.device)
    text = _text(options)
    vocabulary = Vocabulary.of_characters(text)
    options.vocab_size = len(vocabulary)
    config = GPTConfig(**_fields(GPTConfig, options))
    numbers = torch.tensor(vocabulary.encode(text))  # (N,)
    kept = len(numbers) - len(numbers) // 10  # the last tenth is held out
    batches = windows(numbers[:kept], config.context)
    others = None
    if len(numbers) - kept > config.context:
        others = windows(numbers[kept:], config.context)
    _check_memory(config, recipe, device)
    first = processes_here()[0] == 0
    with ExitStack() as stack:
        for path in (options.out, options.checkpoint) if first else ():
            stack.enter_context(reserved(path))
        stack.enter_context(joined(device))
        with torch.random.fork_rng([]):
            torch.default_generator.manual_seed(recipe.seed)
            model = GPT(config).to(device)
        checksum = hashlib.sha256(text.encode()).hexdigest()
        run = Run(model, recipe, vocabulary, f"a text with sha256 {checksum}")
        report = _reporter(vocabulary, others, options.sample)
        go_on(
            run,
            batches,
            options.checkpoint,
            resume=options.resume,
            every=options.every,
            report=report,
        )
        if first:
            about = {"recipe": asdict(recipe), "data": run.about["data"]}
            save_model(options.out, model, vocabulary, about=about)
            print(f"wrote {options.out}")


def _reporter(
    vocabulary: Vocabulary, others: Batches | None, length: int
) -> Callable[[Run], None]:
    """Says how a run stands: its losses, and what the model writes."""
    start = "\n" if "\n" in vocabulary else vocabulary[0]
    prompt, sampling = vocabulary.encode(start), Sampling(temperature=0.8)
    held_out = others and others(256, torch.Generator().manual_seed(1))

    def report(run: Run) -> None:
        if processes_here()[0] > 0:
            return
        line = f"step {len(run.losses)}: loss {run.losses[-1]:.4f}"
        if held_out is not None:
            line += f", held out {mean_loss(run.model, *held_out):.4f}"
        tqdm.write(line)
        if length:
            with evaluating(run.model):
                [written] = complete(
                    run.model, [prompt], length, sampling=sampling
                )
            tqdm.write("  " + repr(vocabulary.decode(written)))

    return report


def _fields(kind, options):
    return {f.name: getattr(options, f.name) for f in fields(kind)}


def _text(options):
    path = options.text
    if path is None:
        return tiny_shakespeare()
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path} is no text; expected UTF-8; got {error}"
        ) from None
    if not text:
        raise ValueError(f"{path} is empty; expected some text; got none")
    return text


def _check_memory(config: GPTConfig, recipe: Recipe, device: torch.device):
    """Raise if a run surely needs more memory than there is.

    A parameter takes four numbers: itself, its gradient, and two averages of
    AdamW's. A token takes its logits and, in each block, more than ten
    vectors of the model's width. A number has four bytes.
    """
    if device.type == "cuda":
        there = torch.cuda.get_device_properties(device).total_memory
    else:
        there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    a_token = config.vocab_size + 10 * config.n_layers * config.d_model
    tokens = recipe.batch_size * config.context // processes_here()[1]
    needed = 4 * (4 * config.parameter_count() + tokens * a_token)
    if needed > there:
        raise MemoryError(
            "the run does not fit into memory; expected at most "
            f"{there / 1e9:.3g} GB; got sizes that take {needed:.3g} bytes "
            "or more: lower the sizes or the batch_size"
        )
