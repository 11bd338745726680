"""The command ``python -m attnbook check mine.py:attention``.

It holds a function of a file against a task of the book.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import importlib.util
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attnbook.teach.check.own.form import Form
from attnbook.teach.check.own.report import examine, form_of, task_of
from attnbook.teach.check.own.ways import DTYPES, MASKS, PAIRS, WrongUse
from attnbook.teach.check.registry import the_book
from attnbook.teach.check.words import fill, in_cases, say

_EXAMPLE = "mine.py:attention --as scaled_dot_product_attention"


def main(arguments: list[str] | None = None) -> int:
    """The command; its exit code: 0 if the function is right, 1 if it is
    wrong, 2 for what its user must mend."""
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        if options.list:
            say(listing())
            return 0
        if not options.target or not options.task:
            raise WrongUse(
                "expected a function and a task, such as "
                f"{_EXAMPLE}; --list lists the tasks"
            )
        task_of(options.task)
        target = loaded(options.target)
        found = examine(target, options.task, **_ways(options))
    except WrongUse as why:
        print(f"{parser.prog}: {why}", file=sys.stderr)
        return 2
    say(found.message)
    return 0 if found.right else 1


def listing() -> str:
    """The list of all tasks under their topics, with a line on each."""
    book = the_book()
    topics: dict[str, list[str]] = {}
    for name in sorted(book.tasks, key=lambda n: form_of(n).topic == ""):
        topic = form_of(name).topic or "Other tasks"
        topics.setdefault(topic, []).append(name)
    lines = []
    for topic, names in topics.items():
        lines.append(f"{topic}:")
        for name in names:
            task = book.tasks[name]
            cases = in_cases(len(task.cases())).removeprefix("in ")
            mark = _marks(form_of(name))
            lines.append(fill(f"{name} ({cases}{mark}): {task.wanted}", "  "))
    return "\n".join(lines)


def _marks(form: Form) -> str:
    """What of a task may come in other forms, in words."""
    kinds = [role.kind for role in form.arguments.values()]
    kinds += [role.kind for role in form.results]
    words = []
    if {"heads", "pairs", "tokens"} & set(kinds):
        words.append("--layout")
    if "mask" in kinds:
        words.append("--masks")
    if "pairs" in kinds:
        words.append("--pairs")
    if form.module:
        words.append("modules")
    if form.draw:
        words.append("--sizes")
    return "".join(f", {word}" for word in words)


def loaded(place: str) -> Any:
    """What a place such as "mine.py:attention" names.

    The file runs in this process, as if it were imported.

    Raises:
        WrongUse: if there is no such file, or nothing of that name in it.
    """
    where, _, name = place.rpartition(":")
    if not where or not name:
        raise WrongUse(
            "expected a file and a name in it, such as mine.py:attention; "
            f"got {place!r}"
        )
    module = _module(where)
    found: Any = module
    for part in name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise WrongUse(
                f"there is no {name} in {where}; expected one of "
                f"{', '.join(_callables(module)) or 'some function'}"
            ) from None
    if not callable(found):
        raise WrongUse(
            f"{name} in {where} is a {type(found).__name__}; expected a "
            "function, a class or a module"
        )
    return found


def _module(where: str) -> Any:
    """Import a module, given by its file or by its name.

    Raises:
        WrongUse: there is no such file, or its code raises an error.
    """
    path = Path(where)
    try:
        if not where.endswith(".py"):
            sys.path.insert(0, "")
            return importlib.import_module(where)
        if not path.is_file():
            raise WrongUse(f"there is no file {where}")
        sys.path.insert(0, str(path.resolve().parent))
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules.setdefault(path.stem, module)
        spec.loader.exec_module(module)
    except WrongUse:
        raise
    except BaseException as error:  # the file may do anything
        if isinstance(error, KeyboardInterrupt):
            raise
        raise WrongUse(
            f"{where} cannot be imported: {type(error).__name__}: {error}"
        ) from error
    return module


def _callables(module: Any) -> list[str]:
    """The names of what a module itself defines and that can be called.

    Names that begin with an underscore are left out.
    """
    return [
        name
        for name, thing in vars(module).items()
        if callable(thing)
        and not name.startswith("_")
        and getattr(thing, "__module__", "") == module.__name__
    ]


def _ways(options: argparse.Namespace) -> dict[str, Any]:
    """The keyword arguments of `hold` that the command's options amount to."""
    ways = {
        "layout": options.layout,
        "masks": options.masks,
        "mask_shape": options.mask_shape,
        "pairs": options.pairs,
        "causal": options.causal,
        "names": _pairs("--names", options.names),
        "fixed": {
            name: _value(value)
            for name, value in _pairs("--set", options.set).items()
        },
        "weights": _pairs("--weights", options.weights),
        "module": options.module,
        "result": options.result,
        "dtype": options.dtype,
        "device": options.device,
        "within": options.within,
        "sizes": {
            name: _value(value)
            for name, value in _pairs("--sizes", options.sizes).items()
        },
        "only": tuple(options.only),
        "skip": tuple(options.skip),
        "strict": options.strict,
        "gradients": not options.no_gradients,
    }
    return ways


def _pairs(option: str, words: Sequence[str]) -> Mapping[str, str]:
    """A dictionary of what was typed as pairs, such as "q=query,k=key".

    Args:
        option: the option after which they were typed, for the message.
        words: what was typed.

    Raises:
        WrongUse: a pair without "=", or with nothing on one side of it.
    """
    found = {}
    for word in ",".join(words).split(",") if words else []:
        left, equals, right = word.strip().partition("=")
        if not (left and equals and right):
            raise WrongUse(
                f"{option} takes pairs such as name=value; got {word!r}"
            )
        found[left.strip()] = right.strip()
    return found


def _value(text: str) -> Any:
    """The value that a text is in Python, such as 0.5; else the text."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _parser() -> argparse.ArgumentParser:  # long: one option after another
    """The parser of the command's options, with the help for each of them."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {the_book().package} check",
        description="Hold a function of yours against a task of the book: "
        "exit code 0 if it is right, 1 if it is wrong, 2 if it cannot be "
        "tried.",
    )
    add = parser.add_argument
    add("target", nargs="?", help="a file and a name: mine.py:attention")
    add("--as", dest="task", metavar="TASK", help="what it shall do")
    add("--list", action="store_true", help="list the tasks")
    add(
        "--layout",
        default="",
        metavar="AXES",
        help="the axes of its tensors, such as BTHd, BHTd, BTd or Td",
    )
    add(
        "--masks",
        default="allowed",
        metavar="KIND",
        help="what its masks mean: "
        + "; ".join(f"{name}: {what}" for name, what in MASKS.items()),
    )
    add(
        "--mask-shape",
        default="",
        metavar="AXES",
        help="the axes of its masks, such as TS, BTS or B1TS",
    )
    add(
        "--pairs",
        default="half",
        metavar="KIND",
        help="which components a rotation turns together: "
        + "; ".join(f"{name}: {what}" for name, what in PAIRS.items()),
    )
    add(
        "--causal",
        action="store_true",
        help="it hides later keys without a mask",
    )
    add(
        "--names",
        nargs="+",
        default=[],
        metavar="OURS=YOURS",
        help="its names of arguments",
    )
    add(
        "--set",
        nargs="+",
        default=[],
        metavar="NAME=VALUE",
        help="a value that it has built in, such as eps=1e-6",
    )
    add(
        "--weights",
        nargs="+",
        default=[],
        metavar="OURS=YOURS",
        help="its names of parameters, such as query=attn.q_proj, or "
        "query+key+value=c_attn",
    )
    add(
        "--module",
        action="store_true",
        help="it is a function that makes a module from sizes",
    )
    add(
        "--result",
        type=int,
        metavar="N",
        help="which part of what it returns counts, from 0",
    )
    add(
        "--dtype",
        default="auto",
        metavar="TYPE",
        help=f"its type of numbers: auto, {', '.join(DTYPES)}",
    )
    add("--device", default="cpu", help="where it runs, such as cuda")
    add("--within", type=float, metavar="GAP", help="the largest gap allowed")
    add(
        "--sizes",
        nargs="+",
        default=[],
        metavar="NAME=N",
        help="one more case, of these sizes",
    )
    add(
        "--only",
        nargs="+",
        default=[],
        metavar="WORDS",
        help="only cases with these words in their label",
    )
    add(
        "--skip",
        nargs="+",
        default=[],
        metavar="WORDS",
        help="no cases with these words in their label",
    )
    add(
        "--strict",
        action="store_true",
        help="count the cases too on which right programs differ",
    )
    add(
        "--no-gradients",
        action="store_true",
        help="compare results alone",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
