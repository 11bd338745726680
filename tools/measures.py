"""What a chapter asks of its reader: its minutes, its ideas, its phrases.

usage: python tools/measures.py [--write] [CHAPTER ...]     e.g. 04

A reader takes a minute for 115 words, a minute for 7 visible lines of code,
and a third of a minute for each figure or output. Readers were timed; this is
what they needed. A heading that begins with "Side road:" begins a part that
is folded on the page; the rest, except for the exercises, is the core.

A chapter lists its new ideas in the notebook's metadata under `ideas`, a line
in plain words each, at most twelve. The page shows the list as its section
"What is new here".

Without an option the measures are printed, with the phrases that
`phrases.py` advises against. With --write the minutes are written where the
chapter says them, into the course for teachers and into the first page's ways
through the book, and the list of ideas is written into the chapter.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

from nbformat import NotebookNode
from nbformat.v4 import new_markdown_cell
from notebooks import CHAPTERS, ROOT, notebooks, read, write, write_text
from phrases import find_phrases

from press.headings import ADDRESS

#: How much a reader reads in a minute: of words, of lines of code, of figures
#: and outputs.
WORDS, LINES, FIGURES = 115, 7, 3
#: The most new ideas that a chapter's core path may bring.
MOST_IDEAS = 12
#: Cells with one of these tags have code that the page folds or leaves out.
UNSEEN_CODE = {"setup", "hide-input", "remove-input"}
UNSEEN_CODE |= {"hide-cell", "remove-cell"}
#: Cells with one of these tags have outputs that the page folds or leaves out.
UNSEEN_OUTPUT = {"setup", "hide-output", "remove-output"}
UNSEEN_OUTPUT |= {"hide-cell", "remove-cell"}
#: Tags of cells whose text is folded, or is no part of the lesson.
UNSEEN_TEXT = {"badges", "solution"}

IDEAS_HEADING = "## What is new here"
HEADING = re.compile(r"(?m)^(#+) (.+)$")
EXERCISE = re.compile(r"Exercise (\d+\.\d+): .+ (\d+) minutes\)$")
#: A choice of a question. What is said about it is folded.
CHOICE = re.compile(
    r'(?s)<details class="choice[^>]*>\s*<summary>(.*?)</summary>.*?</details>'
)
PICTURE = re.compile(r"!\[[^]]*\]\(")
#: A row of the course's table: a week's chapters, the minutes of their cores
#: and side roads, the exercises, and the minutes of these.
WEEK = re.compile(r"(?m)^(\| \d+ \| (\[.+?) )\| \d+ \| \d+ (\| ([\d., ]+)) .*")
TEACHERS = CHAPTERS / "teachers.md"
FIRST = CHAPTERS / "index.ipynb"
#: Where each idea of the sources is taught, with links to side roads.
COVERAGE = ROOT / "tests" / "chapters" / "coverage.md"
#: A link to a side road, whose address ends with its minutes. In notebooks it
#: is Jupyter's address, which has the brackets around the minutes.
TO_ROAD = re.compile(
    r"(?P<page>[\w]*)(?P<kind>(?:\.ipynb)?)"
    r"#(?P<road>[Ss]ide-road:?-(?:[^\s()\"]|\([^\s()\"]*\))+?)"
    r"-(?P<opened>\(?)\d+-minutes?(?P<closed>\)?)(?=[)\s\"])"
)
TIME = re.compile(
    r"\*\*Time:\*\* (\d+) minutes, side roads (\d+) more, exercises (\d+)\."
)


@dataclass
class Part:
    """The part of a chapter under one heading, or under several."""

    kind: str  # "core", "side road" or "exercises"
    heading: str = ""
    words: int = 0
    lines: int = 0
    figures: int = 0  # figures and outputs

    @property
    def minutes(self) -> int:
        """How long a reader takes, at least one minute."""
        takes = self.words / WORDS
        takes += self.lines / LINES
        takes += self.figures / FIGURES
        return max(1, round(takes))


@dataclass
class Measures:
    """What `measure` has found about a chapter.

    Attributes:
        parts: the core first, then side roads and exercises in their order.
        each: the minutes of each exercise, by its number.
        ideas: how many new ideas the chapter lists.
    """

    parts: list[Part] = field(default_factory=list)
    each: dict[str, int] = field(default_factory=dict)
    ideas: int = 0

    @property
    def core(self) -> int:
        """The minutes of the core."""
        return sum(p.minutes for p in self.parts if p.kind == "core")

    @property
    def exercises(self) -> int:
        """The minutes of all exercises, as their headings say them."""
        return sum(self.each.values())

    @property
    def side_roads(self) -> int:
        """The minutes of all side roads."""
        return sum(p.minutes for p in self.parts if p.kind == "side road")

    def __str__(self) -> str:
        core = [p for p in self.parts if p.kind == "core"]
        words, lines, figures = (
            sum(getattr(p, name) for p in core)
            for name in ("words", "lines", "figures")
        )
        return (
            f"core {self.core} minutes ({words} words, {lines} lines of code, "
            f"{figures} figures and outputs), side roads {self.side_roads}, "
            f"exercises {self.exercises}; {self.ideas or 'no list of'} ideas"
        )


def measure(notebook: NotebookNode) -> Measures:
    """Count the words, visible lines and figures of each part of a chapter."""
    core = Part("core")
    found = Measures([core], ideas=len(notebook.metadata.get("ideas", [])))
    part = core
    level = 0
    for cell in notebook.cells:
        tags = set(cell.metadata.get("tags", []))
        if cell.cell_type == "code":
            part.lines += visible_lines(cell)
            part.figures += 0 if UNSEEN_OUTPUT & tags else len(cell.outputs)
            continue
        if UNSEEN_TEXT & tags:
            continue
        # The text before a cell's first heading belongs to the part before.
        places = [0, *(m.start() for m in HEADING.finditer(cell.source))]
        for start, end in zip(places, [*places[1:], None]):
            text = cell.source[start:end]
            if heading := HEADING.match(text):
                marks, title = heading.groups()
                if part is core or len(marks) <= level:
                    part = core
                    level = len(marks)
                    if title.startswith("Side road:"):
                        part = Part("side road", title)
                    elif title == "Exercises":
                        part = Part("exercises", title)
                    if part is not core:
                        found.parts.append(part)
                if minutes := EXERCISE.search(title):
                    found.each[minutes[1]] = int(minutes[2])
            part.words += words(text)
            part.lines += code_lines(text)
            part.figures += len(PICTURE.findall(text))
    return found


def words(text: str) -> int:
    """How many words a text has to read.

    A formula within a line counts as one word, a formula on its own as ten.
    Code and folded text do not count.
    """
    text = CHOICE.sub(r"\1", text)
    text = re.sub(r"(?ms)<details>.*?</details>|^```.*?^```", "", text)
    text = re.sub(r"(?s)\$\$.*?\$\$", "w " * 10, text)
    text = re.sub(r"\$[^$]+\$", "w", text)
    text = re.sub(rf"\]{ADDRESS}", "]", text)
    return len(re.findall(r"[^\W_][\w'’.-]*", text))


def visible_lines(cell: NotebookNode) -> int:
    """How many lines of code a cell shows: its own, and those of its output.

    An output has code where `show_source` prints the source of a function.
    """
    tags = set(cell.metadata.get("tags", []))
    shown = "\n".join(
        "".join(output.get("data", {}).get("text/markdown", ""))
        for output in cell.outputs
    )
    if UNSEEN_CODE & tags:
        own = 0
    else:
        own = sum(1 for line in cell.source.splitlines() if line.strip())
    return own + (0 if UNSEEN_OUTPUT & tags else code_lines(shown))


def code_lines(text: str) -> int:
    """How many lines of Python a text in Markdown has, without folded ones."""
    text = CHOICE.sub(r"\1", text)
    text = re.sub(r"(?s)<details>.*?</details>", "", text)
    fenced = re.findall(r"(?s)(```|~~~)python\n(.*?)\1", text)
    shown = "".join(code for _, code in fenced)
    return sum(1 for line in shown.splitlines() if line.strip())


def list_of_ideas(notebook: NotebookNode) -> str:
    """The section that shows a chapter's new ideas, in Markdown.

    Raises:
        ValueError: the metadata's `ideas` are no list of 1 to 12 lines.
    """
    ideas = notebook.metadata.get("ideas")
    is_list = isinstance(ideas, list) and 1 <= len(ideas) <= MOST_IDEAS
    if not is_list or not all(
        isinstance(idea, str) and idea.strip() and "\n" not in idea
        for idea in ideas
    ):
        raise ValueError(
            f"a chapter lists its new ideas in the notebook's metadata under "
            f"'ideas'; expected 1 to {MOST_IDEAS} texts of one line each; got "
            f"{ideas!r}. If there are more, move some to side roads, or make "
            f"two chapters of one."
        )
    return "\n".join([f"{IDEAS_HEADING}\n", *(f"- {i}" for i in ideas)])


def stamped(notebook: NotebookNode) -> NotebookNode:
    """The chapter, with its minutes in the text and its list of ideas.

    The list is written into the cell tagged `ideas`. Where there is none yet,
    one is made before *Further reading*.
    """
    if "ideas" in notebook.metadata:
        write_ideas(notebook)
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


def write_ideas(notebook: NotebookNode) -> None:
    """Write the list of ideas into its cell, which is made if need be."""
    text = list_of_ideas(notebook)
    for cell in notebook.cells:
        if "ideas" in cell.metadata.get("tags", []):
            cell.source = text
            return
    places = [
        number
        for number, cell in enumerate(notebook.cells)
        if cell.source.startswith("## Further reading")
    ]
    cell = new_markdown_cell(text, metadata={"tags": ["ideas"]})
    cell.id = "what-is-new"  # the same each time that it is made
    notebook.cells.insert(places[0] if places else len(notebook.cells), cell)


def course(text: str) -> str:
    """The page for teachers, with the minutes of each week as measured now.

    Raises:
        LookupError: a week has an exercise that its chapters do not have.
    """

    def week(m: re.Match) -> str:
        """The row of a week in the table, with its minutes."""
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
    """The first page, with its minutes as measured now.

    These are the minutes of the first six chapters, and those that a chapter
    takes on average.
    """
    found = [measure(read(path)) for path in chapters([])]
    first = sum(f.core for f in found[:6])
    to_read = sum(f.core + f.side_roads for f in found) / len(found)
    to_try = sum(f.exercises for f in found) / len(found)
    text = re.sub(r"\d+ minutes to read\.", f"{first} minutes to read.", text)
    a_chapter = f"{to_read:.0f} minutes to read and {to_try:.0f} to try"
    return re.sub(r"\d+ minutes to read and \d+ to try", a_chapter, text)


def road_address(heading: str) -> str:
    """The address of a side road on its page, without its minutes.

    >>> road_address("Side road: who loses by dividing? (2 minutes)")
    'side-road-who-loses-by-dividing'
    """
    title = re.sub(r" \(\d+ minutes?\)$", "", heading).lower()
    return re.sub(r"-+", "-", re.sub(r"[^\w\s-]", "", title).replace(" ", "-"))


def relinked(text: str, page: str, roads: dict[tuple[str, str], int]) -> str:
    """A text whose links to side roads have the minutes that they take now.

    `roads` has the minutes of each side road, by the name of its page and its
    address; `page` is the page that the text is on.
    """

    def link(m: re.Match) -> str:
        """A link to a side road with its minutes; others stay as they are."""
        road = road_address(unquote(m["road"]).replace("-", " "))
        takes = roads.get((m["page"] or page, road))
        if takes is None:
            return m[0]
        time = minutes(takes).replace(" ", "-")
        address = f"{m['road']}-{m['opened']}{time}{m['closed']}"
        return f"{m['page']}{m['kind']}#{address}"

    return TO_ROAD.sub(link, text)


def relink() -> None:
    """Change all links to side roads, so that they have today's minutes."""
    roads = {
        (path.stem, road_address(part.heading)): part.minutes
        for path in chapters([])
        for part in measure(read(path)).parts
        if part.kind == "side road"
    }
    for path in [*notebooks(), *CHAPTERS.glob("*.md"), COVERAGE]:
        old = path.read_text("utf-8")
        new = relinked(old, path.stem, roads)
        if new != old:
            write_text(path, new)


def minutes(n: int) -> str:
    """A number of minutes in words."""
    return "1 minute" if n == 1 else f"{n} minutes"


def chapters(wanted: list[str]) -> list[Path]:
    """The chapters of these numbers, such as "04"; all if there are none."""
    return [
        p
        for p in notebooks()
        if p.name[0].isdigit() and (not wanted or p.name[:2] in wanted)
    ]


def main(arguments: list[str]) -> int:
    """Print the measures, or write them where they are told."""
    writing = "--write" in arguments
    for path in chapters([a for a in arguments if a != "--write"]):
        notebook = read(path)
        if writing:
            write(path, stamped(notebook))
        print(f"{path.name[:2]}: {measure(notebook)}")
        for cell in notebook.cells:
            if cell.cell_type == "markdown":
                for place, phrase, advice in find_phrases(cell.source):
                    print(f"    “{phrase}” in: {place}\n        {advice}")
    if writing:
        write_text(TEACHERS, course(TEACHERS.read_text("utf-8")))
        first = read(FIRST)
        for cell in first.cells:
            if "minutes to read" in cell.source:
                cell.source = ways(cell.source)
        write(FIRST, first)
        relink()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
