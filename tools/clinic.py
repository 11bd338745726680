"""The clinic: make its page and its index, or measure its search.

usage: python tools/clinic.py [--write] [--kept]

The causes of what somebody sees are in the catalogue's `clinic.toml`. With
--write the page "Something is wrong" is made of them, and the index that both
`mistakes.find` and the page's search box use. Where a section was renamed, the
cause is led to the one with the most similar name, and that is printed.

Without an option public reports are searched for, in the words of who
reported them, and it is printed in how many cases the cause is among the
first three. `benchmarks/clinic_reports.toml` has the reports. Half of the
new ones were chosen by a seed and kept: nobody looked at them while the
search was made. Which of those fail is printed with --kept. The sets that
came later are named by their number; the file says which were looked at.

The index's weights are fitted to reports, too. So each set is asked of an
index that was made without its own reports. (Words that were added to causes
when a set had been looked at stay: what is printed of such a set is better
than what a new one would get.)
"""

from __future__ import annotations

import difflib
import inspect
import json
import random
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from mdit_py_plugins.anchors.index import slugify
from notebooks import CHAPTERS, ROOT, read, write_text

from attnbook.teach.catalogue import all_mistakes, all_tasks
from attnbook.teach.check.registry import the_book
from attnbook.teach.page.clinic import (
    Cause,
    Clinic,
    Symptom,
    index_path,
    the_clinic,
    weigh,
)
from attnbook.teach.page.mistakes import address, plain
from attnbook.teach.page.ranking import rank

PAGE = CHAPTERS / "something_is_wrong.md"
GLOSSARY = CHAPTERS / "glossary.md"
REPORTS = ROOT / "benchmarks" / "clinic_reports.toml"

#: The sets of reports that came later.
LATER = ("second", "third", "told", "fourth")

#: The sets that the search learns from, without the half that is kept.
LEARNED_FROM = ("review", "new", "second", "third", "told")

#: A report's cause counts as found if it is among so many first results.
FIRST = 3
#: The seed that chooses the half of the new reports that is kept unseen.
SEED = 34

HEAD = """# Something is wrong

You have a fault and not yet a name for it. Type what you see, in your own
words or in those of the trade, or look through the symptoms below.

<div id="clinic" hidden></div>

**What you will do:** start from what you see, find what it may come from, and
make sure with a test of one line.

**What you need:** your own program, and a Python session beside it.

**How long:** five minutes for one fault.

Each symptom comes with the causes that are worth trying first. (If you suspect
one function, for example your attention, [check it
directly](check_your_own.md) instead.)

Each cause comes with **a test of one line**. It is true where all is well, and
false, or an error, where that cause is at work. In it `mine` is your own
function; what it is called with is said beside it. Names such as `model` or
`tokens` are those of your own program. The lines need no more than

```python
import math
import torch
import torch.nn.functional as F
```

In Python the same search is `mistakes.find`:

```python
from attnbook.teach.page import mistakes

mistakes.find("loss halves with padding mask")
```
"""


def glossary_names(text: str) -> list[list[str]]:
    """The glossary's terms that have other names, each with its names.

    Args:
        text: the glossary's source.
    """
    found = []
    for entry in re.split(r"\n(?=\S)", text):
        called = re.search(r"^  Also called:([^.]*)\.", entry, re.MULTILINE)
        if called:
            names = [name.split() for name in called[1].split(",")]
            term = entry.partition("\n")[0].strip()
            found.append([term, *(" ".join(name) for name in names)])
    return found


def synonyms() -> list[list[str]]:
    """Groups of words that mean the same, for the search.

    They come from the clinic's file and from the other names in the glossary.
    """
    path = the_book().clinic
    assert path is not None
    own = tomllib.loads(path.read_text("utf-8"))["synonyms"]
    return own + glossary_names(GLOSSARY.read_text("utf-8"))


def sections(page: str) -> list[str]:
    """The anchors of a chapter's sections, in their order."""
    cells = read(CHAPTERS / f"{page}.ipynb").cells
    text = "\n".join(c.source for c in cells if c.cell_type == "markdown")
    return [slugify(h) for h in re.findall(r"(?m)^#{1,3} (.+)$", text)]


def mend_links(text: str) -> str:
    """The clinic's file, with links that lead to sections that exist.

    The anchor of a section is made of its heading, and in the heading of a
    side road there are its minutes. So a link breaks whenever a side road is
    measured anew. It is then changed to lead to the section with the most
    similar name or, where none is similar, to the one that every chapter has.
    """

    def mend(match: re.Match[str]) -> str:
        """A link that leads to a section, the same one if it is there."""
        page, anchor = match.groups()
        there = sections(page)
        if anchor in there:
            return match[0]
        near = difflib.get_close_matches(anchor, there, n=1, cutoff=0.6)
        found = near[0] if near else "where-people-go-wrong"
        print(f"{page}: #{anchor} is #{found} now")
        return f'at = "{page}#{found}"'

    return re.sub(r'(?m)^at = "(\w+)#([\w-]+)"$', mend, text)


def learned_from(left_out: str = "") -> Iterator[tuple[str, list[str]]]:
    """What people have reported, with its causes, for the search to learn.

    Args:
        left_out: a set of reports that it is not to learn from.
    """
    data = tomllib.loads(REPORTS.read_text("utf-8"))
    kept = kept_half(data["new"])
    seen = [r for r, k in zip(data["new"], kept, strict=True) if not k]
    for name in LEARNED_FROM:
        if name == left_out:
            continue
        for report in seen if name == "new" else data[name]:
            for words in [report["symptom"], *report.get("words", [])]:
                yield words, report["causes"]


@cache
def index_without(left_out: str = "") -> dict[str, Any]:
    """The search's index, made without one of the sets of reports."""
    reports = learned_from(left_out)
    return weigh(the_clinic(), all_mistakes(), synonyms(), reports)


def index_text() -> str:
    """The text of the stored index, for `mistakes.find` and the page."""
    index = index_without()
    causes = [
        {"id": cause.id, "says": cause.says}
        for cause in the_clinic().causes.values()
    ]
    stored = {"entries": causes, **index}
    return json.dumps(stored, ensure_ascii=False, separators=(",", ":"))


def page_text(clinic: Clinic) -> str:
    """The text of the page *Something is wrong*, in Markdown."""
    parts = [HEAD]
    first: dict[str, Symptom] = {}
    for symptom in clinic.symptoms:
        for cause in symptom.causes[: symptom.n_own]:
            first[cause.id] = symptom
    for symptom in clinic.symptoms:
        parts.append(f"## {symptom.title}\n")
        for cause in symptom.causes[: symptom.n_own]:
            parts += [*explained(cause)]
        for cause in symptom.causes[symptom.n_own :]:
            parts.append(
                f'**{plain(cause.says)}** <a href="#{cause.id}">The test, and '
                f'the mend</a>, under "{plain(first[cause.id].title)}".\n'
            )
    return "\n".join(parts)


def explained(cause: Cause) -> Iterator[str]:
    """The lines of the page about one cause: its test, mend and links."""
    yield f'<span id="{cause.id}"></span>\n\n**{plain(cause.says)}**\n'
    if cause.on:
        task = all_tasks()[cause.on]
        given = str(inspect.signature(task.right))
        given = re.sub(r"=<[^>]*>", "", given)
        yield (
            f"*Test*, with `mine{given}` as your own function, which returns "
            f"{cause.gives or plain(task.wanted)}:\n"
        )
    else:
        yield "*Test*, in your own program:\n"
    yield f"```python\n{cause.test}\n```\n"
    links = ", ".join(
        f"[`{name}`](mistakes.ipynb#{name})" for name in cause.mistakes
    )
    known = f" Known mistakes: {links}." if links else ""
    yield (
        f"*Mend:* {cause.mend} [Chapter {int(cause.at[:2])}]"
        f"({address(cause)}) explains it.{known}\n"
    )


# Measuring


def reports() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The reports that a review found, and the new ones."""
    data = tomllib.loads(REPORTS.read_text("utf-8"))
    return data["review"], data["new"]


def later_reports() -> dict[str, list[dict[str, Any]]]:
    """The sets of reports that came after these, by their names."""
    data = tomllib.loads(REPORTS.read_text("utf-8"))
    return {name: data[name] for name in LATER if name in data}


def kept_half(new: Sequence[Mapping[str, Any]]) -> list[bool]:
    """For each new report whether it is in the half that nobody looks at.

    The half is chosen at random, always by the same seed.
    """
    numbers = list(range(len(new)))
    random.Random(SEED).shuffle(numbers)
    kept = set(numbers[: len(new) // 2])
    return [n in kept for n in range(len(new))]


def first_of(words: str, left_out: str = "") -> list[str]:
    """The names of the causes that the search finds first.

    Args:
        words: what is searched for.
        left_out: the set of reports without which its index is made.
    """
    names = list(the_clinic().causes)
    return [names[n] for n, _ in rank(index_without(left_out), words)[:FIRST]]


def is_found(
    report: Mapping[str, Any], words: str, left_out: str = ""
) -> bool:
    """Whether the search finds a cause of a report among the first three.

    Args:
        report: the report, which names the causes that are right.
        words: what is searched for.
        left_out: the set of reports without which its index is made.
    """
    names = first_of(words, left_out)
    return any(cause in names for cause in report["causes"])


def share(found: Sequence[bool]) -> str:
    """In words, how many searches of these found their cause."""
    n = sum(found)
    return f"{n} of {len(found)} ({n / len(found):.0%})"


def measure(show_kept: bool) -> None:
    """Print for each group of reports how often the search finds the cause.

    Below it are the reports whose cause is not found.

    Args:
        show_kept: also print those of the kept half.
    """
    # long: the groups, and what is printed of each
    review, new = reports()
    review = [r for r in review if r["causes"]]
    kept = kept_half(new)
    groups = {
        "review, the symptom": (review, "symptom", "review"),
        "review, the words tried": (review, "words", "review"),
        "new, looked at while tuning": (
            [r for r, k in zip(new, kept, strict=True) if not k],
            "symptom",
            "new",
        ),
    }
    for name, later in later_reports().items():
        groups[name] = (later, "symptom", name)
    groups["new, kept"] = (
        [r for r, k in zip(new, kept, strict=True) if k],
        "symptom",
        "new",
    )
    for name, (group, field, own) in groups.items():
        there = [r for r in group if r["causes"]]
        asked = [
            (r, words)
            for r in there
            for words in (
                [r[field]] if isinstance(r[field], str) else r[field]
            )
        ]
        found = [is_found(r, words, own) for r, words in asked]
        absent = len(group) - len(there)
        print(f"{name}: {share(found)}, {absent} with a cause that is absent")
        if name != "new, kept" or show_kept:
            for (report, words), there_is in zip(asked, found, strict=True):
                if not there_is:
                    print(f"    {report['thread']}: {words!r}")
                    print(
                        f"      wanted {report['causes']}, "
                        f"got {first_of(words, own)}"
                    )


def main() -> None:
    """Make the page and the index, or measure the search."""
    options = sys.argv[1:]
    if unknown := set(options) - {"--write", "--kept"}:
        sys.exit(
            f"tools/clinic.py does not know {', '.join(sorted(unknown))}; "
            "expected --write, --kept or nothing"
        )
    if "--write" in options:
        clinic = the_book().clinic
        assert clinic is not None
        write_text(clinic, mend_links(clinic.read_text("utf-8")))
        write_text(PAGE, page_text(the_clinic()))
        write_text(Path(index_path(clinic)), index_text() + "\n")
    else:
        measure("--kept" in options)


if __name__ == "__main__":
    main()
