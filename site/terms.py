"""Words that lead to the glossary, symbols that lead to their row.

On every page but a few, the first use of each term of the glossary becomes a
link to its entry, and the first formula that is nothing but a symbol of the
notation a link to its row; a line at the head of the page lists all symbols
that stand in its formulas. This happens while the pages are written: the
notebooks know nothing of it, and no author can forget it.

The glossary and the notation are the only sources. In an entry of the
glossary comments may name the forms by which its term is found, where these
are not just the term and its plural, and phrases in which the same words
mean something else::

    value
      % forms: *value*, keys and [values]
      % except: face value
      What a token hands over into the average. [Chapter 1](...)

A form between asterisks counts only where it is all that is stressed, as it
is where a page defines it. Of a form with brackets the part inside becomes
the link; what stands around it must be there. The entry's first sentence is
what a mouse that rests on a link is told, and the pages that the entry links
to are those that explain the term.

In the notation, each table with the columns "symbol" and "meaning" is read.
If it has a column "chapter", a row of it holds on the pages that stand there,
and on no others.

What is explained and never used fails the build.
"""

import re
from itertools import accumulate
from typing import NamedTuple

from docutils import nodes
from sphinx import addnodes
from sphinx.errors import ExtensionError
from sphinx.util import logging

logger = logging.getLogger(__name__)

GLOSSARY, NOTATION = "glossary", "notation"

#: Pages that have no such links: the sources, and what leads elsewhere.
UNLINKED = {GLOSSARY, NOTATION, "bibliography", "index"}

#: What is no running text, or leads elsewhere. What is strong is the head of
#: a paragraph.
NO_TEXT = (
    nodes.title,
    nodes.caption,
    nodes.table,
    nodes.strong,
    nodes.reference,
    addnodes.pending_xref,
)

#: Stands for what is no word in a paragraph's text: a formula, code, a link.
OBJECT = "\N{OBJECT REPLACEMENT CHARACTER}"


class Form(NamedTuple):
    """A pattern by which a term is found."""

    pattern: re.Pattern
    stem: str  # in lower case, and in all that the pattern finds
    stressed: bool  # found only where it is all that is stressed
    means: bool  # else what it finds means something else


class Term(NamedTuple):
    """An entry of the glossary."""

    name: str
    anchor: str
    tooltip: str
    forms: tuple[Form, ...]
    pages: frozenset[str]  # that explain it


class Symbol(NamedTuple):
    """A symbol of the notation."""

    name: str  # its LaTeX in normal form
    latex: str
    anchor: str
    tooltip: str
    pages: frozenset[str]  # where it has this meaning; none: in general


# Formulas


def without_groups(latex):
    r"""Latex without braces and type: ``d_{\mathrm{in}}`` gives ``d_in``."""
    return re.sub(r"\\math(?:rm|sf)\b|[{}]", "", latex).strip()


def normal(latex):
    r"""A formula in normal form, by which symbols are compared."""
    return re.sub(r"\s+|\\[,;!]", "", without_groups(latex))


# Words in an index belong to a symbol's name; those elsewhere are no symbols.
INDEX_WORDS = re.compile(r"_\{\s*\\math(?:rm|sf)\s*\{([^{}]*)\}\s*\}")
WORDS = re.compile(
    r"\\(?:text|operatorname|math(?:rm|sf|bf)|begin|end)\b\*?\s*"
    r"(?:\{[^{}]*\}|[A-Za-z])"
)
ATOM = re.compile(
    r"(\\[A-Za-z]+|[A-Za-z])'*(?:_(?:\{([^{}]*)\}|(\\[A-Za-z]+|\w)))?"
)


def atoms(latex):
    r"""The letters and commands of a formula, each with its index.

    >>> atoms(r"s_{ij} \le d_{\mathrm{in}}^2")
    ['s_ij', '\\le', 'd_in']
    """
    latex = WORDS.sub(" ", INDEX_WORDS.sub(r"_{\1}", latex))
    return [
        normal(f"{letter}_{braced or single}" if braced or single else letter)
        for letter, braced, single in ATOM.findall(latex)
    ]


# Reading the sources


def plain(node):
    """The text of a node, its formulas without LaTeX's marks."""
    parts = [
        without_groups(part) if isinstance(part.parent, nodes.math) else part
        for part in node.findall(nodes.Text)
        if not isinstance(part.parent, nodes.comment)
    ]
    return " ".join("".join(parts).split())


def pages_linked(node):
    """The pages that a part of a page links to."""
    return frozenset(
        link["reftarget"]
        for link in node.findall(addnodes.pending_xref)
        if link["refdomain"] == "doc"
    )


def read_form(text, means=True):
    """The form that a glossary's comment describes; see above."""
    inner = text.strip("*")
    parts = re.split(r"[][]", inner) if "[" in inner else ["", inner, ""]
    if len(parts) != 3 or not parts[1]:
        raise ExtensionError(
            "a form of the glossary cannot be read; expected words, of which "
            f"some may stand in one pair of brackets; got {text!r}"
        )
    before, link, after = (
        re.sub(r"(\\\s)+", r"\\s+", re.escape(part)) for part in parts
    )
    if not after and not text.startswith("*"):  # the regular plural
        link = re.sub(r"(?<=[^aeiou])y$", "(?:y|ie)", link) + "(?:e?s)?"
    return Form(
        re.compile(
            rf"(?<![\w-]){before}(?P<link>{link}){after}(?![\w-])",
            re.IGNORECASE,
        ),
        parts[1].split()[0].lower().rstrip("y"),
        text.startswith("*"),
        means,
    )


def read_terms(doctree):
    """The entries of the glossary."""
    terms = []
    for item in doctree.findall(nodes.definition_list_item):
        [definition] = item.findall(nodes.definition)
        [first, *_] = re.split(r"(?<=[.!?])\s", plain(definition))
        name = item[0].astext()
        comments = "".join(
            comment.astext() for comment in definition.findall(nodes.comment)
        )
        start, *parts = re.split(r"(\w+):", comments)
        marks = {"forms": name, **dict(zip(parts[::2], parts[1::2]))}
        if start or marks.keys() - {"forms", "except"}:
            raise ExtensionError(
                f"a comment in the glossary's {name!r} cannot be read; "
                f"expected forms: or except: and what they are; "
                f"got {comments!r}"
            )
        forms = [
            read_form(" ".join(form.split()), means=kind == "forms")
            for kind in marks
            for form in marks[kind].split(",")
        ]
        terms.append(
            Term(
                name,
                item[0]["ids"][0],
                first,
                tuple(forms),
                pages_linked(definition),
            )
        )
    return tuple(terms)


def symbol_rows(doctree):
    """The rows of the notation's tables of symbols: cells by column, row."""
    for table in doctree.findall(nodes.table):
        head, *rows = table.findall(nodes.row)
        columns = [cell.astext() for cell in head]
        if {"symbol", "meaning"} <= set(columns):
            for row in rows:
                yield dict(zip(columns, row)), row


def symbols_in(cell):
    """The symbols in a cell, some of which may share a formula."""
    return [
        latex.strip()
        for formula in cell.findall(nodes.math)
        for latex in formula.astext().split(",")
    ]


def name_rows(app, doctree):
    """Give the notation's rows their anchors, such as ``sym-d-k``."""
    if app.env.docname != NOTATION:
        return
    for cells, row in symbol_rows(doctree):
        if symbols := symbols_in(cells["symbol"]):
            parts = [normal(symbols[0])]
            if "chapter" in cells:
                parts += sorted(pages_linked(cells["chapter"]))[:1]
            name = re.sub(r"[^A-Za-z0-9]+", "-", " ".join(parts)).strip("-")
            row["ids"].append(f"sym-{name}")


def read_symbols(doctree):
    """The symbols of the notation."""
    symbols = []
    for cells, row in symbol_rows(doctree):
        tooltip = plain(cells["meaning"])
        if "shape" in cells and (shape := plain(cells["shape"])):
            tooltip += f"; shape {shape}"
        pages = frozenset()
        if "chapter" in cells:
            pages = pages_linked(cells["chapter"])
        symbols += [
            Symbol(normal(latex), latex, row["ids"][0], tooltip, pages)
            for latex in symbols_in(cells["symbol"])
        ]
    return tuple(symbols)


# Finding and linking


def link_to(address, anchor, tooltip, kind, *content):
    """A link of the kind "term" or "symbol", for the css to tell apart."""
    return nodes.reference(
        "",
        "",
        *content,
        internal=True,
        refuri=f"{address}#{anchor}",
        reftitle=tooltip,
        classes=[kind],
    )


def is_running(node, section):
    """Whether a part of a section is running text."""
    while node is not section:
        if isinstance(node, NO_TEXT) or "nb_element" in node:
            return False
        node = node.parent
    return True


def words_of(node):
    """The text of a part of a paragraph, if words in it may become links."""
    if isinstance(node, nodes.Text):
        return str(node)
    plain_inside = all(isinstance(child, nodes.Text) for child in node)
    if isinstance(node, nodes.emphasis) and plain_inside:
        return node.astext()
    return OBJECT


def cut(parts, place):
    """The parts of a paragraph before a place in its text, those behind."""
    before, behind = [], list(parts)
    while behind and place > 0:
        part = behind.pop(0)
        words = words_of(part)
        if place < len(words):  # so it is no object and not stressed
            behind.insert(0, nodes.Text(words[place:]))
            part = nodes.Text(words[:place])
        before.append(part)
        place -= len(words)
    return before, behind


def find_terms(text, stressed, terms):
    """Where a text uses terms: starts, ends, terms; none overlaps another.

    The longer wins: a causal mask is no mask. What is stressed, given by
    starts and ends, is looked at as a whole.
    """
    lower, found = text.lower(), []
    for term in terms:
        for form in term.forms:
            if form.stem in lower:
                found += [
                    (*match.span("link"), term if form.means else None)
                    for match in form.pattern.finditer(text)
                    if match.span("link") in stressed or not form.stressed
                ]
    chosen = []
    for start, end, term in sorted(found, key=lambda f: (f[0] - f[1], f[0])):
        within = any(a < start < b or a < end < b for a, b in stressed)
        if not within and all(end <= a or b <= start for a, b, _ in chosen):
            chosen.append((start, end, term))
    return sorted((f for f in chosen if f[2]), key=lambda f: f[0])


def link_terms(section, terms, address, used):
    """Link the first use of each term in a section; add those to `used`."""
    for paragraph in section.findall(nodes.paragraph):
        if not is_running(paragraph, section):
            continue
        parts = paragraph.children
        words = [words_of(part) for part in parts]
        ends = list(accumulate(map(len, words)))
        stressed = {
            (end - len(text), end)
            for part, text, end in zip(parts, words, ends)
            if isinstance(part, nodes.emphasis)
        }
        new = []
        for start, end, term in find_terms("".join(words), stressed, terms):
            if term not in used:
                used.add(term)
                new.append((start, end, term))
        for start, end, term in reversed(new):  # so that places stay
            parts, behind = cut(parts, end)
            parts, inside = cut(parts, start)
            link = link_to(address, term.anchor, term.tooltip, "term", *inside)
            parts = [*parts, link, *behind]
        if new:
            paragraph.children = []
            paragraph.extend(parts)


def link_symbols(section, symbols, address, linked):
    """Link the first formula that is nothing but a symbol, for each."""
    for formula in list(section.findall(nodes.math)):
        symbol = symbols.get(normal(formula.astext()))
        running = is_running(formula.parent, section)
        if symbol and running and symbol not in linked:
            linked.add(symbol)
            formula.replace_self(
                link_to(
                    address,
                    symbol.anchor,
                    symbol.tooltip,
                    "symbol",
                    formula.deepcopy(),
                )
            )


def symbols_used(doctree, symbols):
    """The symbols in a page's formulas, in the order of appearance."""
    names = [
        name
        for formula in doctree.findall(
            lambda node: isinstance(node, (nodes.math, nodes.math_block))
        )
        for name in atoms(formula.astext())
    ]
    return [symbols[name] for name in dict.fromkeys(names) if name in symbols]


def line_of_symbols(symbols, address):
    """The line at the head of a page that lists its symbols."""
    line = nodes.paragraph(classes=["symbols"])
    line += nodes.strong("", "Symbols:")
    for symbol in symbols:
        line += nodes.Text(" ")  # no comma, which would begin a line
        line += link_to(
            address,
            symbol.anchor,
            symbol.tooltip,
            "symbol",
            nodes.math("", symbol.latex),
        )
    return line


def symbols_on(page, symbols):
    """The symbols by name, as one page means them."""
    general = {s.name: s for s in symbols if not s.pages}
    return general | {s.name: s for s in symbols if page in s.pages}


def link_page(doctree, page, terms, symbols, address_of):
    """Link a page's words and symbols; the terms and symbols found.

    Its head says what is to come: links begin with the first section.
    """
    top = next(doctree.findall(nodes.section), nodes.section())
    symbols = symbols_on(page, symbols)
    found = symbols_used(top, symbols)
    terms_used, linked = set(), set()
    for section in top.children:
        if isinstance(section, nodes.section):
            link_terms(section, terms, address_of(GLOSSARY), terms_used)
            link_symbols(section, symbols, address_of(NOTATION), linked)
    if found:
        end = next(
            (
                i
                for i, child in enumerate(top.children)
                if isinstance(child, nodes.section)
                or child.get("nb_element") == "cell_code"
            ),
            len(top),
        )
        top.insert(end, line_of_symbols(found, address_of(NOTATION)))
    return terms_used, set(found)


# While the book is built


def linked_pages(env):
    return sorted(env.found_docs - UNLINKED)


def read_sources(app, env):
    """Read glossary and notation; if they changed, all pages are rewritten."""
    words = (
        read_terms(env.get_doctree(GLOSSARY)),
        read_symbols(env.get_doctree(NOTATION)),
    )
    changed = words != getattr(env, "book_words", None)
    env.book_words = words
    return linked_pages(env) if changed else []


def find_unused(app, env):
    """Warn of terms and symbols that are explained and not used."""
    terms, symbols = env.book_words
    used = {
        page: link_page(env.get_doctree(page), page, terms, symbols, str)
        for page in linked_pages(env)
    }
    for kind, entries, source in (
        (0, terms, GLOSSARY),
        (1, symbols, NOTATION),
    ):
        for entry in entries:
            having = {page for page in used if entry in used[page][kind]}
            missing = sorted(entry.pages - having)
            if not having or missing:
                logger.warning(
                    "%s is explained and not used; expected it in %s",
                    entry.name,
                    ", ".join(missing) or "some page",
                    location=source,
                )


def link_resolved(app, doctree, docname):
    """Link a page that is about to be written."""
    if docname in linked_pages(app.env):
        link_page(
            doctree,
            docname,
            *app.env.book_words,
            lambda page: app.builder.get_relative_uri(docname, page),
        )


def setup(app):
    app.connect("doctree-read", name_rows)
    app.connect("env-updated", read_sources)
    app.connect("env-check-consistency", find_unused)
    # Last: what other extensions add is text, too.
    app.connect("doctree-resolved", link_resolved, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
