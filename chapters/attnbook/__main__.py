"""The command `python -m attnbook`, and the others that start with it.

The first word chooses the command. Anything else is the text to train on, so
a text that happens to be called `grade` is written as `./grade`.
"""

from __future__ import annotations

import importlib
import os
import sys

#: The first word of a command, and the module whose `main` runs the rest of
#: the line. A module is imported only when its command is wanted.
COMMANDS = {
    "chat": "attnbook.chat",
    "check": "attnbook.teach.check.own.command",
    "grade": "attnbook.teach.check.grade",
    "hands": "attnbook.run.hands",
    "sample": "attnbook.run.sample",
}


def main(arguments: list[str]) -> int:
    """Run the command that the words ask for, and return its exit code."""
    if arguments and arguments[0] in COMMANDS:
        module = importlib.import_module(COMMANDS[arguments[0]])
        return module.main(arguments[1:])
    from attnbook.run.command import main as train

    return train(arguments)


def started() -> int:
    """Run the command of this process, whose output may be cut off.

    Where whoever reads it has gone, as in `… | head`, nobody is left to be
    told anything, so the rest goes nowhere and no error is shown.
    """
    try:
        code = main(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        return 1
    return code


if __name__ == "__main__":
    sys.exit(started())
