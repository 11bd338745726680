"""What can be typed after `python -m attnbook`: the options, explained."""

from __future__ import annotations

import argparse
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch

from attnbook.gpt import GPTConfig
from attnbook.training import Recipe

PROGRAM = "python -m attnbook"

#: The model and the recipe for a text, if no option asks for others;
#: benchmarks/shakespeare.py measures how well they do.
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

#: The other commands, each a word after `PROGRAM`, and what they do.
OTHERS = {
    "chat": "talk with a published model",
    "check": "hold a function of yours against the book's cases",
    "grade": "grade the exercises in a folder of notebooks",
    "hands": "compute one training step by several ranks, and compare",
    "sample": "let a trained model write",
}

#: For options whose default is no fixed value: how the default is found.
DEFAULTS = {
    "warmup": "a twentieth of the steps",
    "n_kv_heads": "as many as heads",
    "d_ff": "4 times d_model; for swiglu, with its three matrices, 8/3 times",
}


class OneLineParser(argparse.ArgumentParser):
    """A parser whose errors are one line, without the usage in front."""

    def error(self, message: str) -> Any:
        """End the program with exit code 2 and one line of explanation."""
        self.exit(2, f"{self.prog}: {message}\n")


class _Help(
    argparse.ArgumentDefaultsHelpFormatter,
    argparse.RawDescriptionHelpFormatter,
):
    """Adds to an option's help its default value, if it has a fixed one.

    The lines above and below the options stay as they are written.
    """

    def _get_help_string(self, action: argparse.Action) -> str | None:
        """The help of an option, without a default that is None or False."""
        if action.default in (None, False):
            return action.help
        return super()._get_help_string(action)


def training_parser() -> argparse.ArgumentParser:
    """The parser of `python -m attnbook TEXT`, with help for each option.

    The options of the model and of the recipe are made from the fields of
    `GPTConfig` and `Recipe`, which bring their own help.
    """
    parser = OneLineParser(
        prog=PROGRAM,
        description="Train a small GPT on the characters of a text.",
        epilog="other commands, each with a --help of its own:\n"
        + "\n".join(
            f"  {PROGRAM} {word:<8}{what}" for word, what in OTHERS.items()
        ),
        formatter_class=_Help,
    )
    add = parser.add_argument
    source = parser.add_mutually_exclusive_group()
    source.add_argument(
        "text", type=Path, nargs="?", help="a file of plain text in UTF-8"
    )
    source.add_argument(
        "--shakespeare", action="store_true", help="Tiny Shakespeare instead"
    )
    out = Path("model.safetensors")
    add("--out", type=Path, default=out, help="the finished model")
    add("--resume", action="store_true", help="go on from the checkpoint")
    add("--overwrite", action="store_true", help="replace files that exist")
    add(
        "--start-from",
        type=Path,
        metavar="MODEL",
        help="a finished model: begin with its weights and its sizes instead "
        "of random weights",
    )
    add("--every", type=int, default=250, help="steps from report to report")
    add("--sample", type=int, default=64, help="characters in a report")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    add("--device", default=device, help="cpu, cuda or cuda:N")
    _add_fields(parser.add_argument_group("model"), TEXT_CONFIG)
    _add_fields(parser.add_argument_group("recipe"), TEXT_RECIPE)
    return parser


def training_options(arguments: list[str] | None) -> argparse.Namespace:
    """What is typed after `python -m attnbook`, read as options.

    A line without a text ends the program with exit code 2, and a sentence
    that names the other commands too.

    Args:
        arguments: what was typed; that of this process if None.
    """
    parser = training_parser()
    options = parser.parse_args(arguments)
    if options.text is None and not options.shakespeare:
        parser.error(
            "expected the file of a text to train on, or --shakespeare, or "
            f"one of the commands {', '.join(OTHERS)}; got none of them; "
            "--help says more"
        )
    return options


def _add_fields(group: Any, given: GPTConfig | Recipe) -> None:
    """Add an option to a group for each field of a config or a recipe.

    Args:
        group: the group of a parser.
        given: has the default value of each option. There is no option for the
            size of the vocabulary, since the text decides it.
    """
    for field in fields(given):
        if field.name == "vocab_size":  # it follows from the text
            continue
        default = getattr(given, field.name)
        group.add_argument(
            "--" + field.name.replace("_", "-"),
            default=None if field.name == "warmup" else default,
            help=_explained(field.name, field.metadata),
            **_kind(default),
        )


def _explained(name: str, metadata: Any) -> str:
    """The help of an option.

    Args:
        name: of the field.
        metadata: of the field: under "help" what it is, under "rules" the
            choices, if there are some.
    """
    text = metadata["help"]
    choices = metadata["rules"].get("choices")
    if choices:
        text += f": {', '.join(choices)}"
    if name in DEFAULTS:
        text += f" (default: {DEFAULTS[name]})"
    return text


def _kind(value: Any) -> dict[str, Any]:
    """How argparse is to read an option, as arguments of `add_argument`.

    Args:
        value: the option's default value, whose type decides.
    """
    if isinstance(value, bool):
        return {"action": argparse.BooleanOptionalAction}
    if isinstance(value, tuple):
        return {"type": float, "nargs": len(value), "metavar": "FLOAT"}
    kind = int if value is None else type(value)
    return {"type": kind, "metavar": kind.__name__.upper()}


def chosen(options: argparse.Namespace, kind: Any) -> Any:
    """Make a config or a recipe of the options that belong to it.

    Args:
        options: what the user has chosen.
        kind: `GPTConfig` or `Recipe`.
    """
    given = vars(options)
    return kind(**{field.name: given[field.name] for field in fields(kind)})
