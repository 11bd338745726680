"""Known mistakes on a page, and the way to them from what one sees.

``mistakes.run("forgets_the_scale")`` shows one; ``mistakes.find("loss halves
with padding mask")`` names the likely causes of a fault.
"""

from __future__ import annotations

import re

from IPython.display import display

from attnbook.teach.check.judge import Verdict, judge
from attnbook.teach.check.registry import the_book
from attnbook.teach.check.task import Mistake, threads_in
from attnbook.teach.check.words import fill
from attnbook.teach.page.clinic import Cause, find_causes


def get(name: str) -> Mistake:
    """One known mistake by its name.

    Raises:
        ValueError: if there is none of that name.
    """
    known = the_book().mistakes
    if name not in known:
        raise ValueError(
            f"there is no known mistake {name!r}; expected one of "
            f"{', '.join(known)}"
        )
    return known[name]


def run(name: str) -> None:
    """Show a known mistake: what happens at once, all the rest folded."""
    display(Evidence(get(name)))


def find(words: str, most: int = 3) -> Found:
    """What a fault may come from, the likeliest first.

    Args:
        words: what you see, in your own words or in those of the trade:
            ``mistakes.find("loss halves with padding mask")``.
        most: how many causes are given at most.

    Raises:
        ValueError: if there are no words.
    """
    return Found(find_causes(words, most))


class Found(list[Cause]):
    """Causes that were found; a page shows each with its test and mend."""

    def _repr_markdown_(self) -> str:
        parts = [
            f"{n}. **{plain(cause.says)}**\n\n"
            f"   True where all is well: `{cause.test}`\n\n"
            f"   *Mend:* {cause.mend} "
            f"Explained in `{address(cause)}`."
            for n, cause in enumerate(self, 1)
        ]
        return "\n\n".join(parts) or _NOTHING_FOUND

    def __repr__(self) -> str:
        parts = []
        for n, cause in enumerate(self, 1):
            parts += [
                fill(f"{n}. {cause.says}"),
                f"  true where all is well: {cause.test}",
                fill(f"  mend: {cause.mend}"),
                f"  explained in {address(cause)}",
            ]
            if cause.mistakes:
                named = ", ".join(cause.mistakes)
                parts.append(fill(f"  known mistakes: {named}"))
        return "\n".join(parts) or _NOTHING_FOUND


_NOTHING_FOUND = (
    "Nothing fits these words. Try what you see in other words, or look "
    "through the page 'Something is wrong'."
)


def address(cause: Cause) -> str:
    """The file and section that explain a cause, as seen from a page."""
    page, _, anchor = cause.at.partition("#")
    return f"{page}.ipynb#{anchor}"


def verdict(mistake: Mistake) -> Verdict:
    """What the check says of a mistake, as of a stranger's code.

    It may not know the mistake by its name, so it has to find out.
    """
    return judge(mistake.wrong, mistake.task, known={})


class Evidence:
    """A known mistake as a page shows it.

    What happens comes first. The wrong code, its cause, the fix, the threads
    where it was seen and the check that catches it are folded. Where nothing
    can be folded, all of it is plain text.
    """

    def __init__(self, mistake: Mistake) -> None:
        self.symptom = mistake.symptom
        self.source = mistake.source()
        self.cause = mistake.cause
        self.fix = mistake.fix
        self.seen = links(mistake.seen)
        self.check = f"check.{mistake.task.name}"
        self.caught = verdict(mistake).short

    def _repr_markdown_(self) -> str:
        seen = ", ".join(f"[{t}]({at})" for t, at in self.seen.items())
        found = [f"*Seen in* {seen}"] if seen else []
        parts = [
            f"*What happens:* {plain(self.symptom)}",
            "<details>\n<summary>The wrong code, its cause, the fix, and what "
            "catches it</summary>",
            f"```python\n{self.source}\n```",
            f"*Cause:* {plain(self.cause)}",
            f"*Fix:* {plain(self.fix)}",
            *found,
            f"*Caught by* `{self.check}`: {plain(self.caught)}",
            "</details>",
        ]
        return "\n\n".join(parts)

    def __repr__(self) -> str:
        seen = ", ".join(self.seen.values())
        found = [fill(f"seen in: {seen}")] if seen else []
        parts = [
            fill(f"what happens: {self.symptom}"),
            self.source,
            "",
            fill(f"cause: {self.cause}"),
            fill(f"fix: {self.fix}"),
            *found,
            fill(f"caught by {self.check}: {self.caught}"),
        ]
        return "\n".join(parts)


def links(seen: str) -> dict[str, str]:
    """The threads named in a text, and the address of each."""
    found = {}
    for thread in threads_in(seen):
        repository, number = thread.split(" #")
        found[thread] = f"https://github.com/{repository}/issues/{number}"
    return found


def plain(text: str) -> str:
    """A text for Markdown that is shown as it is: every sign that would
    format something is escaped."""
    return re.sub(r"([\\`*_\[\]<>|])", r"\\\1", text)
