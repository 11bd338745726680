"""A plain-text twin of each built page, and a list of them: llms.txt.

It is for assistants, and for people who prefer to read or to hear a text. A
twin is in Markdown: formulas are TeX, a figure is its description, solutions
and answers come last. Folded code, which draws figures, is left out, as on
paper.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from bs4 import NavigableString, PageElement, Tag

from press.articles import chapter, lightened, move_solutions
from press.contents import Contents
from press.markup import Markup
from press.tree import classes, one, parse, value

#: What stands within a line; all else begins a new paragraph.
INLINE = {"a", "b", "br", "code", "em", "i", "kbd", "math", "span", "strong"}

#: The names of headings.
HEADING = re.compile("h[1-6]")

#: How a word is marked in Markdown.
MARKS = {"b": "**", "code": "`", "em": "*", "i": "*", "strong": "**"}

HEAD = """\
{title}: the page {page}.html as plain text.
It is Markdown. Formulas are TeX, figures are described, folded code is left
out; solutions and answers stand at the end. The pages in their order: llms.txt
"""


def tex(formula: Tag) -> str:
    """A formula as its author wrote it, in TeX."""
    return one(formula, "annotation").get_text().strip()


def tidy(text: str) -> str:
    """Words with one space between them, the lines of `<br>` kept."""
    lines = (re.sub(r"\s+", " ", line).strip() for line in text.split("\n"))
    return "\n".join(line for line in lines if line)


def words(node: PageElement) -> str:
    """What a node says within a line; a line break is that of a `<br>`.

    A comment of the page, which is a string of another kind, says nothing.
    """
    if type(node) is NavigableString:
        return re.sub(r"\s+", " ", node)
    if not isinstance(node, Tag):
        return ""
    if node.name == "br":
        return "\n"
    if "katex" in classes(node):
        return f"${tex(node)}$"
    if node.name in ("img", "svg"):
        return described(node)
    text = "".join(map(words, node.children))
    if node.name == "a" and text.strip():
        return link(text.strip(), node)
    mark = MARKS.get(node.name, "")
    return f"{mark}{text}{mark}" if text.strip() else text


def link(text: str, tag: Tag) -> str:
    """A link as Markdown, if it leads to another page or another host.

    Of a link to a term of the glossary, or to a place on the same page, only
    the words are kept.

    Args:
        text: the words of the link.
        tag: the element, in a chapter that `articles.chapter` has made.
    """
    href = value(tag, "href")
    if href.startswith("#"):
        page = href[1:].partition("--")[0]
        own = value(tag.find_parents(class_="chapter")[-1], "id")
        if page in (own, "solutions") or "term" in classes(tag):
            return text
        href = f"{page}.txt"
    return f"[{text}]({href})"


def described(picture: Tag) -> str:
    """What a picture shows, in the words of its page; empty if it has none."""
    text = value(picture, "alt") or value(picture, "aria-label")
    return f"[Figure: {text}]" if text else ""


def blocks(tag: Tag) -> Iterator[str]:
    """The paragraphs of an element, each one or more lines."""
    line = ""
    for child in tag.children:
        if not isinstance(child, Tag) or child.name in INLINE:
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
    if HEADING.fullmatch(tag.name):
        yield f"{'#' * int(tag.name[1])} {tidy(words(tag))}"
    elif "math" in classes(tag):
        yield f"$$\n{tex(tag)}\n$$ {one(tag, '.eqno').get_text()}"
    elif tag.name == "details" and not one(tag, "summary").find(HEADING):
        yield from fold(tag)
    elif tag.name in KINDS:
        yield from KINDS[tag.name](tag)
    elif "citation" in classes(tag):
        yield from paragraph(tag)
    else:
        yield from blocks(tag)


def paragraph(tag: Tag) -> Iterator[str]:
    """A paragraph, unless it says nothing."""
    if said := tidy(words(tag)):
        yield said


def code_block(tag: Tag) -> Iterator[str]:
    """Code or an output between fences of Markdown, unless it is empty."""
    code = tag.get_text().strip("\n")
    if code:
        yield f"```{kind(tag)}\n{code}\n```"


def picture(tag: Tag) -> Iterator[str]:
    """What a picture shows, in words, if somebody wrote them."""
    if said := described(tag):
        yield said


def fold(tag: Tag) -> Iterator[str]:
    """The paragraphs of a folded part, each of them whole.

    The first begins with the words that a reader would click on to unfold it.
    """
    summary = tidy(words(one(tag, "summary").extract()))
    first, *rest = [*blocks(tag)] or [""]
    gap = "\n\n" if first.startswith("```") else " "
    yield f"{summary}:{gap}{first}"
    yield from rest


def kind(code: Tag) -> str:
    """What a block of code is: Python, a shell's lines, or an output."""
    box = code.find_parent(class_=re.compile("^highlight-"))
    if not box:
        return ""
    (name,) = (c for c in classes(box) if c.startswith("highlight-"))
    return {"ipython3": "python", "myst-ansi": "output"}.get(
        name[10:], name[10:]
    )


def items(tag: Tag) -> Iterator[str]:
    """The lines of a list; what follows in an item is indented."""
    first = int(value(tag, "start") or 1)
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


def twin(page: str, markup: Markup, known: set[str], title: str) -> str:
    """The text of a page.

    Args:
        page: its name.
        markup: its HTML.
        known: the names of all pages, to which links may lead.
        title: of the book.
    """
    part = chapter(page, parse(lightened(markup)), known)
    solutions = move_solutions([part])
    for line in part.select(".to-solution"):
        line.decompose()
    found = [HEAD.format(title=title, page=page).strip(), *blocks(part)]
    if solutions.h3:
        part.append(solutions)
        one(solutions, "h2").decompose()  # the page's title
        one(solutions, "h1").name = "h2"
        found += blocks(solutions)
    return "\n\n".join(found) + "\n"


def write_twins(
    texts: Mapping[str, str], site: Path, title: str, contents: Contents
) -> None:
    """Put the text of each page beside it, and llms.txt, which names them.

    Args:
        texts: the text of each page under the page's name, as `twin` gives it.
        site: the folder of the built pages.
        title: of the book.
        contents: the pages that have a text, in their order.
    """
    lines = [f"# {title}"]
    for caption, names in contents.parts:
        lines += [f"\n## {caption}\n"] if caption else [""]
        for name in names:
            text = texts[name]
            (site / f"{name}.txt").write_text(text, "utf-8")
            (heading, *_) = re.findall("(?m)^# (.*)", text)
            lines.append(f"- [{heading}]({name}.txt)")
    (site / "llms.txt").write_text("\n".join(lines) + "\n", "utf-8")
