"""Words that lead to the glossary.

On every page but a few, the first use of each term of the glossary becomes a
link to its entry. This happens while the pages are written: the notebooks
know nothing of it, and no author can forget it.

In an entry of the glossary comments may name the wordings by which its term
is found, where these are not just the term and its plural, and phrases in
which the same words mean something else::

    value
      % wordings: *value*, keys and [values]
      % except: face value
      What a token hands over into the average. [Chapter 1](...)

A wording between asterisks counts only where it is all that is stressed, as it
is where a page defines it. Of a wording with brackets the part inside becomes
the link; what stands around it must be there. The entry's first sentence is
what a mouse that rests on a link is told, and the pages that the entry links
to are those that explain the term.

An entry may end with what the trade calls the same thing, and with words that
somebody might look for and that the entry explains by the way::

    padding
      Tokens that fill up shorter texts of a batch. [Chapter 5](...)

      Also called: fill tokens.

      See here for: pad token, left padding.

The first are wordings of the term, too, so that they are linked on the pages.
The site's search leads from each word of both lines to the entry.

What is explained and never used fails the build. The comment
``% later: chapter 11`` says of an entry that its chapter does not use the word
yet. Once a page uses it, the build fails until the comment is taken out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any, NamedTuple

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.errors import ExtensionError
from sphinx.util import logging

logger = logging.getLogger(__name__)

GLOSSARY = "glossary"

#: Pages whose words are not linked: the glossary itself, and pages that lead
#: to other pages.
UNLINKED = {GLOSSARY, "notation", "bibliography", "index"}
#: Nor are those of a page of short entries, each of which has a link to its
#: chapter.
UNLINKED |= {"something_is_wrong"}


class Wording(NamedTuple):
    """A pattern by which the uses of a term are found in a text."""

    pattern: re.Pattern
    stem: str  # in lower case; is in every text that the pattern finds
    stressed: bool  # whether it is found only as a whole stressed text
    means: bool  # False if the words mean something else


class Term(NamedTuple):
    """An entry of the glossary."""

    name: str
    anchor: str
    tooltip: str
    wordings: tuple[Wording, ...]
    pages: frozenset[str]  # those that explain it
    later: str = ""  # the chapter that will use it, while no page does


# Reading the glossary


def plain(node: nodes.Node) -> str:
    """The text of a node, its formulas without LaTeX's marks."""
    parts = [
        re.sub(r"\\math(?:rm|sf)\b|[{}]", "", part)
        if isinstance(part.parent, nodes.math)
        else part
        for part in node.findall(nodes.Text)
        if not isinstance(part.parent, nodes.comment)
    ]
    return " ".join("".join(parts).split())


def read_wording(text: str, means: bool = True) -> Wording:
    """The wording that a glossary's comment describes; see the module's text.

    Raises:
        ExtensionError: the wording cannot be read.
    """
    inner = text.strip("*")
    parts = re.split(r"[][]", inner) if "[" in inner else ["", inner, ""]
    if len(parts) != 3 or not parts[1]:
        raise ExtensionError(
            "a wording of the glossary cannot be read; expected words, of "
            f"which some may stand in one pair of brackets; got {text!r}"
        )
    before, link, after = (
        re.sub(r"(\\\s)+", r"\\s+", re.escape(part)) for part in parts
    )
    if not after and not text.startswith("*"):  # the regular plural
        link = re.sub(r"(?<=[^aeiou])y$", "(?:y|ie)", link) + "(?:e?s)?"
    pattern = rf"(?<![\w-]){before}(?P<link>{link}){after}(?![\w-])"
    stem = parts[1].split()[0].lower().rstrip("y")
    stressed = text.startswith("*")
    return Wording(re.compile(pattern, re.IGNORECASE), stem, stressed, means)


#: The lines in which an entry has other names, and words that it explains.
CALLED, SEE_HERE = "Also called:", "See here for:"


def words_of(definition: nodes.Element, line: str) -> list[str]:
    """The words that an entry lists in a line of its own, without the dot.

    Raises:
        ExtensionError: the line has no words, or no full stop at its end.
    """
    found = []
    for paragraph in definition.findall(nodes.paragraph):
        text = plain(paragraph)
        if text.startswith(line):
            listed = text.removeprefix(line).strip()
            words = [word.strip() for word in listed[:-1].split(",")]
            if not listed.endswith(".") or not all(words):
                raise ExtensionError(
                    f"a line of the glossary cannot be read; expected "
                    f"'{line}', then words with commas between them and a "
                    f"full stop at the end; got {text!r}"
                )
            found += words
    return found


def index_other_names(app: Sphinx, doctree: nodes.document) -> None:
    """Add a term's other names to Sphinx's index of the glossary.

    So the site's search leads from each of these names to the entry.
    """
    if app.env.docname != GLOSSARY:
        return
    for item in doctree.findall(nodes.definition_list_item):
        [definition] = item.findall(nodes.definition)
        for line in CALLED, SEE_HERE:
            for name in words_of(definition, line):
                anchor = item[0]["ids"][0]
                entry = ("single", name, anchor, "main", None)
                item[0].append(addnodes.index(entries=[entry]))


def read_terms(doctree: nodes.document) -> tuple[Term, ...]:
    """The entries of the glossary."""
    items: Any = doctree.findall(nodes.definition_list_item)
    return tuple(read_term(item) for item in items)


def read_term(item: Any) -> Term:
    """An entry of the glossary.

    Raises:
        ExtensionError: a comment or a line of it cannot be read.
    """
    [definition] = item.findall(nodes.definition)
    [first, *_] = re.split(r"(?<=[.!?])\s", plain(definition))
    name = item[0].astext()
    comments = definition.findall(nodes.comment)
    comments = "".join(comment.astext() for comment in comments)
    start, *parts = re.split(r"(\w+):", comments)
    marks = {"wordings": name, **dict(zip(parts[::2], parts[1::2]))}
    later = marks.pop("later", "").strip()
    if start or marks.keys() - {"wordings", "except"}:
        raise ExtensionError(
            f"a comment in the glossary's {name!r} cannot be read; "
            f"expected wordings:, except: or later:, each with what it is; "
            f"got {comments!r}"
        )
    wordings = [
        read_wording(" ".join(wording.split()), means=kind == "wordings")
        for kind in marks
        for wording in marks[kind].split(",")
    ]
    wordings += map(read_wording, words_of(definition, CALLED))
    links = definition.findall(addnodes.pending_xref)
    pages = {link["reftarget"] for link in links if link["refdomain"] == "doc"}
    return Term(
        name,
        anchor=item[0]["ids"][0],
        tooltip=first,
        wordings=tuple(wordings),
        pages=frozenset(pages),
        later=later,
    )


# Finding and linking


class Found(NamedTuple):
    """A place where a text uses a term.

    `term` is None where the same words mean something else.
    """

    start: int
    end: int
    term: Term | None


def is_running(node: Any, section: nodes.section) -> bool:
    """Whether a paragraph is neither in a table nor in a cell of code."""
    while node is not section:
        if isinstance(node, nodes.table) or "nb_element" in node:
            return False
        node = node.parent
    return True


def find_terms(
    text: str, stressed: bool, terms: Iterable[Term]
) -> list[tuple[int, int, Term]]:
    """Where a text uses terms: starts, ends, terms; none overlaps another.

    Of two that overlap the longer is taken: the words "causal mask" are a use
    of that term and none of "mask". Words that are stressed are a use only if
    they are the term as a whole.

    Args:
        text: a piece of a paragraph.
        stressed: whether all of it is stressed.
        terms: the terms that are looked for.
    """
    lower = text.lower()
    found: list[Found] = []
    for term in terms:
        for wording in term.wordings:
            if wording.stem not in lower or (
                wording.stressed and not stressed
            ):
                continue
            for match in wording.pattern.finditer(text):
                if not stressed or match["link"] == text:
                    start, end = match.span("link")
                    found.append(
                        Found(start, end, term if wording.means else None)
                    )
    chosen: list[Found] = []
    for one in sorted(found, key=lambda f: (f.start - f.end, f.start)):
        if all(one.end <= c.start or c.end <= one.start for c in chosen):
            chosen.append(one)
    return sorted(
        ((start, end, term) for start, end, term in chosen if term),
        key=lambda use: use[0],
    )


def is_text(node: nodes.Node) -> bool:
    """Whether a node is words alone."""
    return isinstance(node, nodes.Text)


def joined(paragraph: nodes.Element) -> Iterator[nodes.Node]:
    """The parts of a paragraph, with neighbouring texts joined into one."""
    for is_words, group in groupby(paragraph.children, is_text):
        if is_words:
            yield nodes.Text("".join(part.astext() for part in group))
        else:
            yield from group


def cut(
    part: nodes.Node, terms: Iterable[Term], address: str, used: set[Term]
) -> list[nodes.Node]:
    """A part of a paragraph in pieces: links, and what is between them.

    Args:
        terms: the entries of the glossary.
        address: of the glossary, as seen from the page.
        used: the terms that the page has linked already, to which those
            are added that are linked here.
    """
    stressed = isinstance(part, nodes.emphasis)
    if not all(map(is_text, part.children if stressed else [part])):
        return [part]
    text = part.astext()
    pieces: list[nodes.Node] = []
    done = 0
    for start, end, term in find_terms(text, stressed, terms):
        if term not in used:
            used.add(term)
            words = part if stressed else nodes.Text(text[start:end])
            link = nodes.reference(
                "",
                "",
                words,
                internal=True,
                refuri=f"{address}#{term.anchor}",
                reftitle=term.tooltip,
                classes=["term"],
            )
            pieces += [nodes.Text(text[done:start]), link]
            done = end
    return [*pieces, nodes.Text(text[done:])] if pieces else [part]


def link_page(
    doctree: nodes.document, terms: Iterable[Term], address: str
) -> set[Term]:
    """Make the first use of each term on a page a link to the glossary.

    What is before the first section says only what is to come, so it gets no
    links.

    Args:
        doctree: the page, which is changed.
        terms: the entries of the glossary.
        address: of the glossary, as seen from the page.

    Returns:
        the terms that the page uses.
    """
    used: set[Term] = set()
    for top in list(doctree.findall(nodes.section))[:1]:
        for section in top.children:
            if isinstance(section, nodes.section):
                for paragraph in section.findall(nodes.paragraph):
                    if is_running(paragraph, section):
                        parts = [*joined(paragraph)]
                        paragraph.children = []
                        for part in parts:
                            paragraph.extend(cut(part, terms, address, used))
    return used


# While the book is built


def read_glossary(app: Sphinx, env: BuildEnvironment) -> None:
    """Read the terms of the glossary, once Sphinx has read all pages."""
    kept: Any = env
    kept.book_terms = read_terms(env.get_doctree(GLOSSARY))
    kept.terms_used = {}


def link_resolved(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Link the terms on a page that is about to be written."""
    if docname not in UNLINKED:
        kept: Any = app.env
        address = app.builder.get_relative_uri(docname, GLOSSARY)
        used = link_page(doctree, kept.book_terms, address)
        kept.terms_used[docname] = used


def find_unused(app: Sphinx, exception: Exception | None) -> None:
    """Warn of terms that the pages they name do not use.

    A term that is marked `later:` is warned of in the other case: once some
    page uses it.
    """
    if exception is not None:
        return
    kept: Any = app.env
    used = kept.terms_used
    for term in kept.book_terms:
        having = {page for page in used if term in used[page]}
        missing = sorted(term.pages - having)
        if term.later:
            if having:
                words = "%s is used now, in %s; take its 'later:' out"
                where = ", ".join(sorted(having))
                logger.warning(words, term.name, where, location=GLOSSARY)
        elif not having or missing:
            words = "%s is explained and not used; expected it in %s"
            where = ", ".join(missing) or "some page"
            logger.warning(words, term.name, where, location=GLOSSARY)


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("doctree-read", index_other_names)
    app.connect("env-updated", read_glossary)
    # Last, because other extensions add texts whose terms are linked, too.
    app.connect("doctree-resolved", link_resolved, priority=900)
    app.connect("build-finished", find_unused)
    # Sphinx resolves all pages in its first process, which so keeps all terms
    # that are used; the others only write them.
    return {"parallel_read_safe": True, "parallel_write_safe": True}
