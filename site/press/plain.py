"""A plain-text twin of each built page, and a list of them: llms.txt.

For assistants, and for who prefers to read or hear a text. A twin is in
Markdown: formulas as TeX, a figure as its description, solutions and answers
last. Folded code, which draws figures, is left out, as on paper.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from bs4 import NavigableString, Tag

from press.articles import chapter, move_solutions, parse_lightly
from press.contents import Contents
from press.markup import Page

#: What stands within a line; all else begins a new paragraph.
INLINE = {"a", "b", "br", "code", "em", "i", "kbd", "math", "span", "strong"}

#: How a word is marked in Markdown.
MARKS = {"b": "**", "code": "`", "em": "*", "i": "*", "strong": "**"}

HEAD = """\
{title}: the page {page}.html as plain text.
It is Markdown. Formulas are TeX, figures are described, folded code is left
out; solutions and answers stand at the end. The pages in their order: llms.txt
"""


def tex(formula: Tag) -> str:
    return formula.annotation.get_text().strip()


def tidy(text: str) -> str:
    """Words with one space between them, the lines of `<br>` kept."""
    lines = (re.sub(r"\s+", " ", line).strip() for line in text.split("\n"))
    return "\n".join(line for line in lines if line)


def words(node: Tag | NavigableString) -> str:
    """What a node says within a line; a line break is that of a `<br>`."""
    if isinstance(node, NavigableString):
        return (
            re.sub(r"\s+", " ", node) if type(node) is NavigableString else ""
        )
    if node.name == "br":
        return "\n"
    if "katex" in node.get("class", []):
        return f"${tex(node)}$"
    if node.name in ("img", "svg"):
        return described(node)
    text = "".join(map(words, node.children))
    if node.name == "a" and text.strip():
        return link(text.strip(), node)
    mark = MARKS.get(node.name, "")
    return f"{mark}{text}{mark}" if text.strip() else text


def link(text: str, tag: Tag) -> str:
    """A link to another page or host; one to a term or a place is words."""
    href = tag.get("href", "")
    if href.startswith("#"):
        page = href[1:].partition("--")[0]
        own = tag.find_parents(class_="chapter")[-1]["id"]
        if page in (own, "solutions") or "term" in tag.get("class", []):
            return text
        href = f"{page}.txt"
    return f"[{text}]({href})"


def described(picture: Tag) -> str:
    text = picture.get("alt") or picture.get("aria-label")
    return f"[Figure: {text}]" if text else ""


def blocks(tag: Tag) -> Iterator[str]:
    """The paragraphs of an element, each one or more lines."""
    line = ""
    for child in tag.children:
        if isinstance(child, NavigableString) or child.name in INLINE:
            line += words(child)
            continue
        if tidy(line):
            yield tidy(line)
        line = ""
        yield from block(child)
    if tidy(line):
        yield tidy(line)


def block(tag: Tag) -> Iterator[str]:
    """The paragraphs of an element that begins a new one."""
    classes = tag.get("class", [])
    if re.fullmatch("h[1-6]", tag.name):
        yield f"{'#' * int(tag.name[1])} {tidy(words(tag))}"
    elif "math" in classes:
        yield f"$$\n{tex(tag)}\n$$ {tag.select_one('.eqno').get_text()}"
    elif tag.name == "details" and not tag.summary.find(re.compile("h[1-6]")):
        yield from fold(tag)
    elif tag.name in KINDS:
        yield from KINDS[tag.name](tag)
    elif "citation" in classes:
        yield from paragraph(tag)
    else:
        yield from blocks(tag)


def paragraph(tag: Tag) -> Iterator[str]:
    """A paragraph, unless it says nothing."""
    if said := tidy(words(tag)):
        yield said


def code_block(tag: Tag) -> Iterator[str]:
    """Code or an output between fences, unless it is empty."""
    code = tag.get_text().strip("\n")
    if code:
        yield f"```{kind(tag)}\n{code}\n```"


def picture(tag: Tag) -> Iterator[str]:
    """What a picture shows, in words, if somebody wrote them."""
    if said := described(tag):
        yield said


def fold(tag: Tag) -> Iterator[str]:
    """What a page has folded, after the words that open it."""
    summary = tidy(words(tag.summary.extract()))
    first, *rest = [*blocks(tag)] or [""]
    gap = "\n\n" if first.startswith("```") else " "
    yield f"{summary}:{gap}{first}"
    yield from rest


def kind(code: Tag) -> str:
    """What a block of code is: Python, a shell's lines, or an output."""
    box = code.find_parent(class_=re.compile("^highlight-"))
    if not box:
        return ""
    (name,) = (c for c in box["class"] if c.startswith("highlight-"))
    return {"ipython3": "python", "myst-ansi": "output"}.get(
        name[10:], name[10:]
    )


def items(tag: Tag) -> Iterator[str]:
    """The lines of a list; what follows in an item is indented."""
    first = int(tag.get("start", 1))
    for count, item in enumerate(tag.find_all("li", recursive=False), first):
        mark = f"{count}. " if tag.name == "ol" else "- "
        text = "\n".join(blocks(item))
        yield mark + text.replace("\n", "\n" + " " * len(mark))


def rows(table: Tag) -> Iterator[str]:
    """The lines of a table, a rule below its head."""
    if table.caption:
        yield tidy(words(table.caption))
    for row in table.select("tr"):
        cells = [
            tidy(words(cell)).replace("\n", " ").replace("|", r"\|")
            for cell in row.select("th, td")
        ]
        yield f"| {' | '.join(cells)} |"
        if row.find_parent("thead"):
            yield "|" + " --- |" * len(cells)


#: How the elements are written that are neither headings nor formulas.
KINDS: dict[str, Callable[[Tag], Iterator[str]]] = {
    "p": paragraph,
    "pre": code_block,
    "img": picture,
    "svg": picture,
    "ul": lambda tag: iter(["\n".join(items(tag))]),
    "ol": lambda tag: iter(["\n".join(items(tag))]),
    "table": lambda tag: iter(["\n".join(rows(tag))]),
    "dt": lambda tag: iter([f"**{tidy(words(tag))}**"]),
}


def twin(page: str, html: str, known: set[str], title: str) -> str:
    """The text of a page."""
    part = chapter(page, parse_lightly(html), known)
    solutions = move_solutions([part])
    for line in part.select(".to-solution"):
        line.decompose()
    found = [HEAD.format(title=title, page=page).strip(), *blocks(part)]
    if solutions.h3:
        part.append(solutions)
        solutions.h2.decompose()  # the page's title
        solutions.h1.name = "h2"
        found += blocks(solutions)
    return "\n\n".join(found) + "\n"


def write_twins(
    pages: list[Page], site: Path, title: str, contents: Contents
) -> None:
    """Put the text of each page beside it, and llms.txt, which names them.

    Args:
        pages: all pages of the site; those of no document have no text.
        title: of the book.
    """
    known = set(contents.documents)
    html = {page.path.stem: page.markup.html for page in pages}
    lines = [f"# {title}"]
    for caption, names in contents.parts:
        lines += [f"\n## {caption}\n"] if caption else [""]
        for name in names:
            text = twin(name, html[name], known, title)
            (site / f"{name}.txt").write_text(text, "utf-8")
            (heading, *_) = re.findall("(?m)^# (.*)", text)
            lines.append(f"- [{heading}]({name}.txt)")
    (site / "llms.txt").write_text("\n".join(lines) + "\n", "utf-8")
