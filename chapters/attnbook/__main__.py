"""The command `python -m attnbook`, and the others that start with it.

The first word chooses the command. Anything else is the text to train on, so
a text that happens to be called `grade` is written as `./grade`.
"""

from __future__ import annotations

import importlib
import sys

#: The first word of a command, and the module whose `main` runs the rest of
#: the line. A module is imported only when its command is wanted.
COMMANDS = {
    "chat": "attnbook.chat",
    "check": "attnbook.teach.check.own.command",
    "grade": "attnbook.teach.check.grade",
    "sample": "attnbook.run.sample",
}


def main(arguments: list[str]) -> int:
    """Run the command that the words ask for, and return its exit code."""
    if arguments and arguments[0] in COMMANDS:
        module = importlib.import_module(COMMANDS[arguments[0]])
        return module.main(arguments[1:])
    from attnbook.run.command import main as train

    return train(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
