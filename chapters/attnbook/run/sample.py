"""The command `python -m attnbook sample MODEL`: let a trained model write."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from attnbook.generate import Sampling, generate
from attnbook.run.command import (
    first_prompt,
    load_with_vocabulary,
    print_anything,
)
from attnbook.run.options import PROGRAM, OneLineParser
from attnbook.run.processes import usable_device
from attnbook.values import whole
from attnbook.vocabulary import Vocabulary


def _parser() -> OneLineParser:
    """The parser of the command that lets a trained model write."""
    parser = OneLineParser(
        prog=f"{PROGRAM} sample",
        description="Let a trained model go on from a beginning. What was "
        "begun is printed first, and the text as it is written.",
    )
    add = parser.add_argument
    add("model", type=Path, help="a file that the training has written")
    add(
        "--prompt",
        default="",
        help="how the text begins (default: a new line)",
    )
    add(
        "--length",
        type=int,
        default=500,
        help="tokens to write (default: 500)",
    )
    add("--seed", type=int, default=0, help="of what is drawn (default: 0)")
    add(
        "--temperature",
        type=float,
        default=0.8,
        help="below 1: more of what is likely; 0: the likeliest always "
        "(default: 0.8)",
    )
    add("--top-k", type=int, help="keep so many of the likeliest tokens")
    add("--top-p", type=float, help="keep the likeliest that reach this share")
    add("--min-p", type=float, help="least share of the likeliest's chance")
    add("--device", default="cpu", help="cpu, cuda or cuda:N (default: cpu)")
    return parser


def _print_as_it_comes(
    vocabulary: Vocabulary,
    before: int,
    stream: Iterator[list[int | None]],
) -> None:
    """Print the tokens of one text as soon as each is there.

    Args:
        vocabulary: of the tokens.
        before: the token before the first one, which is not printed.
        stream: what `generate` gives for one prompt.
    """
    for (token,) in stream:
        assert token is not None  # there is no stop token
        # With the token before it, since words have spaces between them.
        both = vocabulary.decode([before, token])
        print(both.removeprefix(vocabulary[before]), end="", flush=True)
        before = token
    print()


def main(arguments: list[str] | None = None) -> int:
    """Run the command, and return its exit code.

    It is 0 if all went well, and 130 if Ctrl-C stopped the writing. It is 2
    for an error that the user can mend, of which one line is printed.

    Args:
        arguments: what was typed after the command's name.
    """
    print_anything()
    options = _parser().parse_args(arguments)
    try:
        device = usable_device(options.device)
        model, vocabulary = load_with_vocabulary(options.model)
        model = model.to(device).eval()
        begun = vocabulary.encode(options.prompt or first_prompt(vocabulary))
        whole("--length", options.length, at_least=1)
        context = model.config.context
        if len(begun) > context:
            print(
                f"the beginning has {len(begun)} tokens, and the model was "
                f"trained on texts of {context}: it reads the last ones only",
                file=sys.stderr,
            )
        stream = generate(
            model,
            [begun],
            options.length,
            sampling=Sampling(
                temperature=options.temperature,
                top_k=options.top_k,
                top_p=options.top_p,
                min_p=options.min_p,
            ),
            seed=options.seed,
        )
        print(options.prompt, end="", flush=True)
        _print_as_it_comes(vocabulary, begun[-1], stream)
        return 0
    except KeyboardInterrupt:
        print()
        return 130
    except (ValueError, TypeError, OSError) as error:
        print(f"{PROGRAM} sample: {error}", file=sys.stderr)
        return 2
