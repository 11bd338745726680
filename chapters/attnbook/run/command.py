"""The command `python -m attnbook.training`: training from a shell."""

from __future__ import annotations

import argparse
import hashlib
import io
import os
import sys
from contextlib import contextmanager, nullcontext, redirect_stdout
from dataclasses import asdict, fields
from pathlib import Path

import torch
import torch.distributed as dist
from tqdm import tqdm

from attnbook.gpt import GPT, GPTConfig
from attnbook.run.checkpoints import check_free
from attnbook.text import Vocabulary, tiny_shakespeare, windows
from attnbook.town import Town, vocabulary
from attnbook.training import (
    TOWN_CONFIG,
    TOWN_DTYPE,
    TOWN_RECIPE,
    Recipe,
    own_random_numbers,
    processes_here,
    save_model,
    train,
)

PROGRAM = "python -m attnbook.training"


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:
        self.exit(2, f"{self.prog}: {message}\n")


_HELP = {
    "context": "longest sequence, in tokens",
    "d_model": "width of the residual stream",
    "n_heads": "heads a block",
    "n_layers": "blocks",
    "dropout": "probability that a number is dropped",
    "bias": "biases in the layers",
    "positions": "kind of positions",
    "activation": "of the feed-forward layers",
    "initial_std": "standard deviation of a new matrix",
    "n_kv_heads": "heads of keys and values; as many as heads if not given",
    "d_ff": "width inside the feed-forward layers, if another than usual",
    "norm": "kind of norm, layer or rms",
    "norm_eps": "added inside the root of the norms",
    "rotary_base": "of the angles of rotary positions",
    "tied": "the token embedding as the output head",
    "steps": "updates of the weights",
    "batch_size": "sequences a step, over all processes together",
    "peak": "learning rate when the warm-up is over",
    "warmup": "steps of the warm-up",
    "final": "last learning rate, as part of the peak",
    "betas": "AdamW's two decay rates",
    "weight_decay": "AdamW's weight decay, of matrices",
    "clip": "longest gradient that is let through",
    "seed": "of the weights, the batches and dropout",
}


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog=PROGRAM,
        description="Train a small GPT on the stories of the book's town, or "
        "on the characters of a text. Under torchrun several processes share "
        "each batch.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    source = parser.add_mutually_exclusive_group()
    source.add_argument(
        "--text", type=Path, metavar="FILE", help="train on this UTF-8 text"
    )
    source.add_argument(
        "--shakespeare", action="store_true", help="train on Tiny Shakespeare"
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        default=Path("model.safetensors"),
        help="the finished model",
    )
    parser.add_argument(
        "--checkpoint",
        type=Path,
        metavar="FILE",
        help="what --resume needs; beside the model if not given, as "
        "NAME.checkpoint.safetensors",
    )
    parser.add_argument(
        "--resume", action="store_true", help="go on from the checkpoint"
    )
    parser.add_argument(
        "--overwrite", action="store_true", help="replace files that exist"
    )
    parser.add_argument(
        "--every",
        type=int,
        default=100,
        metavar="N",
        help="report, and write the checkpoint, after so many steps",
    )
    parser.add_argument(
        "--device",
        default="cuda" if torch.cuda.is_available() else "cpu",
        help="cpu, cuda or cuda:N",
    )
    parser.add_argument(
        "--dtype",
        choices=("float32", "float64"),
        default=TOWN_DTYPE,
        help="type of the weights in training",
    )
    for title, given in (("model", TOWN_CONFIG), ("recipe", TOWN_RECIPE)):
        group = parser.add_argument_group(title)
        for name, value in asdict(given).items():
            if name != "vocab_size":  # the text's
                _add_option(group, name, value)
    return parser


def _add_option(group, name, value):
    """An option for one field, with the field's value as its default."""
    kind = int if value is None else type(value)
    options = {"type": kind, "metavar": kind.__name__.upper()}
    if kind is bool:
        options = {"action": argparse.BooleanOptionalAction}
    elif kind is tuple:
        options = {"type": float, "nargs": len(value), "metavar": "FLOAT"}
    group.add_argument(
        "--" + name.replace("_", "-"),
        default=value,
        help=_HELP.get(name, ""),
        **options,
    )


def main(arguments: list[str] | None = None) -> int:
    """The command; its exit code: 0, or 2 for what the user must mend."""
    options = _parser().parse_args(arguments)
    checkpoint = options.checkpoint or options.out.parent / (
        options.out.stem + ".checkpoint.safetensors"
    )
    try:
        with _joined(options.device) as device:
            _train_as_asked(options, checkpoint, device)
    except (ValueError, OSError) as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(
            f"{PROGRAM}: stopped; "
            + (
                f"--resume goes on from {checkpoint}"
                if checkpoint.exists()
                else "no checkpoint was written yet"
            ),
            file=sys.stderr,
        )
        return 130
    return 0


def _train_as_asked(options, checkpoint, device):
    """What the command does, once in each process."""
    check_free(options.out, overwrite=options.overwrite)
    recipe = Recipe(**_fields(Recipe, options))
    vocabulary, batches, others, data = _source(options)
    options.vocab_size = len(vocabulary)
    config = GPTConfig(**_fields(GPTConfig, options))
    with own_random_numbers(torch.device("cpu"), recipe.seed):
        model = GPT(config).to(device, getattr(torch, options.dtype))
    held_out = None
    if others is not None:
        held_out = others(256, torch.Generator().manual_seed(recipe.seed + 1))

    def report(done, history):
        if done % options.every == 0 or done == recipe.steps:
            line = f"step {done}: loss {history.losses[-1]:.4f}"
            if done in history.held_out:
                line += f", held out {history.held_out[done]:.4f}"
            tqdm.write(line)

    train(
        model,
        batches,
        recipe,
        held_out=held_out,
        checkpoint=checkpoint,
        resume=options.resume,
        overwrite=options.overwrite,
        every=options.every,
        vocabulary=vocabulary,
        data=data,
        on_step=report,
    )
    if processes_here()[0] == 0:
        save_model(
            options.out,
            model,
            vocabulary,
            recipe,
            note=f"trained on {data}",
            overwrite=options.overwrite,
        )
        print(f"wrote {options.out}")


def _fields(kind, options):
    return {f.name: getattr(options, f.name) for f in fields(kind)}


def _source(options):
    """Vocabulary, batches, batches held out or None, and a name for it."""
    if options.text is None and not options.shakespeare:
        draw = Town().batches
        return vocabulary(), draw, draw, "the town's stories"
    text = tiny_shakespeare() if options.shakespeare else _text(options.text)
    vocabulary = Vocabulary.of_characters(text)
    numbers = torch.tensor(vocabulary.encode(text))  # (N,)
    kept = len(numbers) - len(numbers) // 10  # the last tenth is held out
    batches = windows(numbers[:kept], options.context)
    others = None
    if len(numbers) - kept > options.context:
        others = windows(numbers[kept:], options.context)
    checksum = hashlib.sha256(text.encode()).hexdigest()
    return vocabulary, batches, others, f"a text with sha256 {checksum}"


def _text(path):
    if not path.is_file():
        raise FileNotFoundError(
            f"there is no file {path}; expected a text; got none"
        )
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path} is no text; expected UTF-8; got {error}"
        ) from None
    if not text:
        raise ValueError(
            f"{path} is empty; expected some text; got 0 characters"
        )
    return text


@contextmanager
def _joined(name):
    """The device to train on; under torchrun, with the other processes."""
    several = dist.is_available() and dist.is_torchelastic_launched()
    if several and name.startswith("cuda"):
        name = f"cuda:{os.environ['LOCAL_RANK']}"  # one each
    try:
        device = torch.device(name)
        usable = device.type in ("cpu", "cuda")
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError):  # torch says it in many words
        usable = False
    if not usable:
        raise ValueError(
            "the device cannot be used; expected cpu, or cuda or cuda:N "
            f"where there is such a card; got {name}"
        )
    if not several:
        yield device
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        silent = dist.get_rank() > 0
        with redirect_stdout(io.StringIO()) if silent else nullcontext():
            yield device
    finally:
        dist.destroy_process_group()
