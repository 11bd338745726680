"""What a chapter asks of a reader: minutes, lines of code, share of checks.

usage: python tools/measures.py [--write] [CHAPTER ...]     e.g. 04

A reader takes a minute for 200 words and one for 12 visible lines of code. A
heading that begins with "Side road:" begins a part that is folded on the page;
the rest, but for the exercises, is the core. With --write the minutes are
written where the chapter says them, into the course for teachers, and into the
first page's ways through the book.
"""

from __future__ import annotations

import ast
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

from nbformat import NotebookNode
from notebooks import CHAPTERS, notebooks, read, write, write_text

WORDS, LINES = 200, 12  # a minute
FOLDED = {"setup", "hide-input", "remove-input", "hide-cell"}
FOLDED |= {"badges", "solution"}
HEADING = re.compile(r"(?m)^(#+) (.+)$")
EXERCISE = re.compile(r"Exercise (\d+\.\d+): .+ (\d+) minutes\)$")
#: A week of the course: its chapters, minutes, exercises, their minutes.
WEEK = re.compile(r"(?m)^(\| \d+ \| (\[.+?) )\| \d+ \| \d+ (\| ([\d., ]+)) .*")
TEACHERS, FIRST = CHAPTERS / "teachers.md", CHAPTERS / "index.ipynb"
TIME = re.compile(
    r"\*\*Time:\*\* (\d+) minutes, side roads (\d+) more, exercises (\d+)\."
)


@dataclass
class Part:
    """A stretch of a chapter under one heading, or more."""

    kind: str  # "core", "side road" or "exercises"
    heading: str = ""
    words: int = 0
    lines: int = 0

    @property
    def minutes(self) -> int:
        return max(1, round(self.words / WORDS + self.lines / LINES))


@dataclass
class Measures:
    """What `measure` found of a chapter.

    Attributes:
        lines: of code that a reader sees.
        lesson: those of them that no exercise has.
        checks: those of the lesson that check.
        each: the minutes of each exercise, by its number.
    """

    parts: list[Part] = field(default_factory=list)
    lines: int = 0
    lesson: int = 0
    checks: int = 0
    each: dict[str, int] = field(default_factory=dict)

    @property
    def core(self) -> int:
        return sum(p.minutes for p in self.parts if p.kind == "core")

    @property
    def exercises(self) -> int:
        return sum(self.each.values())

    @property
    def side_roads(self) -> int:
        return sum(p.minutes for p in self.parts if p.kind == "side road")

    def __str__(self) -> str:
        share = self.checks / max(self.lesson, 1)
        return (
            f"{self.lines} visible lines, {share:.0%} for checks; core "
            f"{self.core} minutes, side roads {self.side_roads}, "
            f"exercises {self.exercises}"
        )


def measure(notebook: NotebookNode) -> Measures:
    """Words and visible lines of each part of a chapter."""
    core = Part("core")
    found = Measures([core])
    part, level = core, 0
    for cell in notebook.cells:
        if cell.cell_type == "code":
            lines, checks = visible(cell)
            part.lines += lines
            found.lines += lines
            if part.kind != "exercises":
                found.lesson += lines
                found.checks += checks
            continue
        if FOLDED & set(cell.metadata.get("tags", [])):
            continue
        # The text before the first heading of a cell belongs to what was.
        places = [0, *(m.start() for m in HEADING.finditer(cell.source))]
        for start, end in zip(places, [*places[1:], None]):
            text = cell.source[start:end]
            if heading := HEADING.match(text):
                marks, title = heading.groups()
                if part is core or len(marks) <= level:
                    part, level = core, len(marks)
                    if title.startswith("Side road:"):
                        part = Part("side road", title)
                    elif title == "Exercises":
                        part = Part("exercises", title)
                    if part is not core:
                        found.parts.append(part)
                if minutes := EXERCISE.search(title):
                    found.each[minutes[1]] = int(minutes[2])
            part.words += words(text)
            lines = code_lines(text)
            part.lines += lines
            found.lines += lines
            found.lesson += lines * (part.kind != "exercises")
    return found


def words(text: str) -> int:
    """Words to read: a formula within a line is one, one of its own ten."""
    text = re.sub(r"(?ms)<details>.*?</details>|^```.*?^```", "", text)
    text = re.sub(r"(?s)\$\$.*?\$\$", "w " * 10, text)
    text = re.sub(r"\$[^$]+\$", "w", text)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    return len(re.findall(r"[^\W_][\w'’.-]*", text))


def visible(cell: NotebookNode) -> tuple[int, int]:
    """Lines of code that a reader sees, and how many of them check."""
    if FOLDED & set(cell.metadata.get("tags", [])):
        return 0, 0
    shown = "\n".join(
        "".join(output.get("data", {}).get("text/markdown", ""))
        for output in cell.outputs
    )
    lines = sum(1 for line in cell.source.splitlines() if line.strip())
    checks = 0
    for node in ast.walk(ast.parse(cell.source)):
        is_check = isinstance(node, ast.Assert) or (
            isinstance(node, ast.Expr)
            and ast.unparse(node.value).startswith("check")
        )
        if is_check:
            checks += node.end_lineno - node.lineno + 1
    return lines + code_lines(shown), checks


def code_lines(text: str) -> int:
    """Lines of Python in a text, not counting what is folded."""
    text = re.sub(r"(?s)<details>.*?</details>", "", text)
    shown = "".join(re.findall(r"(?s)```python\n(.*?)```", text))
    return sum(1 for line in shown.splitlines() if line.strip())


def stamped(notebook: NotebookNode) -> NotebookNode:
    """The chapter, saying the minutes that it takes."""
    found = measure(notebook)
    times = f"{found.core} minutes, side roads {found.side_roads} more"
    times = f"**Time:** {times}, exercises {found.exercises}."
    roads = iter(p for p in found.parts if p.kind == "side road")
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = TIME.sub(times, cell.source)
            cell.source = re.sub(
                r"(?m)^(#+ Side road: .+?) \(\d+ minutes?\)$",
                lambda m: f"{m[1]} ({minutes(next(roads).minutes)})",
                cell.source,
            )
    return notebook


def course(text: str) -> str:
    """The page for teachers, with the minutes that its weeks take.

    Raises:
        LookupError: a week has an exercise that its chapters have not.
    """

    def week(m: re.Match) -> str:
        numbers = re.findall(r"\((\d\d)_", m[2])
        found = [measure(read(path)) for path in chapters(numbers)]
        core, roads = (
            sum(getattr(f, kind) for f in found)
            for kind in ("core", "side_roads")
        )
        each = {name: n for f in found for name, n in f.each.items()}
        takes = sum(each[name] for name in m[4].replace(" ", "").split(","))
        return f"{m[1]}| {core} | {roads} {m[3]} | {takes} |"

    return WEEK.sub(week, text)


def ways(text: str) -> str:
    """The first page, with what an evening and a course take."""
    found = [measure(read(path)) for path in chapters([])]
    evening = sum(f.core for f in found[:6])
    to_read = sum(f.core + f.side_roads for f in found) / len(found)
    to_try = sum(f.exercises for f in found) / len(found)
    text = re.sub(
        r"\d+ minutes to read\.", f"{evening} minutes to read.", text
    )
    a_chapter = f"{to_read:.0f} minutes to read and {to_try:.0f} to try"
    return re.sub(r"\d+ minutes to read and \d+ to try", a_chapter, text)


def minutes(n: int) -> str:
    return f"{n} minute{'s' * (n != 1)}"


def chapters(wanted: list[str]) -> list[Path]:
    return [
        p
        for p in notebooks()
        if p.name[0].isdigit() and (not wanted or p.name[:2] in wanted)
    ]


def main(arguments: list[str]) -> int:
    writing = "--write" in arguments
    for path in chapters([a for a in arguments if a != "--write"]):
        notebook = read(path)
        print(f"{path.name[:2]}: {measure(notebook)}")
        if writing:
            write(path, stamped(notebook))
    if writing:
        write_text(TEACHERS, course(TEACHERS.read_text("utf-8")))
        first = read(FIRST)
        for cell in first.cells:
            if "minutes to read" in cell.source:
                cell.source = ways(cell.source)
        write(FIRST, first)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
