"""Known mistakes on a page: ``mistakes.run("forgets_the_scale")``."""

from __future__ import annotations

import re

from IPython.display import display

from attnbook.teach.catalogue import all_mistakes
from attnbook.teach.check.tasks import Mistake
from attnbook.teach.check.words import fill

_THREAD = re.compile(r"([\w.-]+/[\w.-]+) ((?:#\d+(?:, )?)+)")

#: Threads of which we had no copy to read; the page of all mistakes says so.
NOT_LOOKED_UP = frozenset(
    {
        "Blaizzy/mlx-vlm #1983",
        "NeuraLegion/shainet #110",
        "allenai/olmoearth_pretrain #605",
        "harvardnlp/annotated-transformer #60",
        "huggingface/diffusers #14342",
        "huggingface/transformers #14521",
        "huggingface/transformers #26142",
        "intro-llm/intro-llm.github.io #51",
        "ml-explore/mlx-lm #1039",
        "paiml/aprender #2753",
        "pytorch/examples #1029",
        "rasbt/LLMs-from-scratch #857",
        "rasbt/LLMs-from-scratch #893",
        "zhouhaoyi/Informer2020 #59",
    }
)


def get(name: str) -> Mistake:
    """One known mistake by its name.

    Raises:
        ValueError: if there is none of that name.
    """
    known = all_mistakes()
    if name not in known:
        raise ValueError(
            f"there is no known mistake {name!r}; expected one of "
            f"{', '.join(known)}"
        )
    return known[name]


def run(name: str) -> None:
    """Run a known mistake: what happens, and the rest folded."""
    display(Evidence(get(name)))


class Evidence:
    """What happens; wrong code, cause and fix, where seen, what catches it.

    A page folds all but the first; where nothing can fold it is plain text.
    """

    def __init__(self, mistake: Mistake) -> None:
        self.symptom = mistake.symptom
        self.source = mistake.source()
        self.cause = mistake.cause
        self.fix = mistake.fix
        self.seen = links(mistake.seen)
        self.check = f"check.{mistake.task.name}"
        self.caught = mistake.verdict().short

    def _repr_markdown_(self) -> str:
        seen = ", ".join(f"[{t}]({at})" for t, at in self.seen.items())
        parts = [
            f"*What happens:* {plain(self.symptom)}",
            "<details>\n<summary>The wrong code, its cause, the fix, and what "
            "catches it</summary>",
            f"```python\n{self.source}\n```",
            f"*Cause:* {plain(self.cause)}",
            f"*Fix:* {plain(self.fix)}",
            *[f"*Seen in* {seen}"] * bool(seen),
            f"*Caught by* `{self.check}`: {plain(self.caught)}",
            "</details>",
        ]
        return "\n\n".join(parts)

    def __repr__(self) -> str:
        seen = ", ".join(self.seen.values())
        parts = [
            fill(f"what happens: {self.symptom}"),
            self.source,
            "",
            fill(f"cause: {self.cause}"),
            fill(f"fix: {self.fix}"),
            *[fill(f"seen in: {seen}")] * bool(seen),
            fill(f"caught by {self.check}: {self.caught}"),
        ]
        return "\n".join(parts)


def links(seen: str) -> dict[str, str]:
    """The threads named in a text, and the address of each."""
    return {
        f"{repository} #{number}": (
            f"https://github.com/{repository}/issues/{number}"
        )
        for repository, numbers in _THREAD.findall(seen)
        for number in re.findall(r"\d+", numbers)
    }


def plain(text: str) -> str:
    """Text in which Markdown finds nothing to format."""
    return re.sub(r"([\\`*_\[\]<>|])", r"\\\1", text)
