"""One style sheet and small fonts: what the pages use of the theme's.

The theme brings Bootstrap and all of Font Awesome, some 80 kB of compressed
rules and 275 kB of icons, of which a page shows a few. Once all pages are
written they are read: the style sheets that they link become one, whose rules
are for names that stand on a page or in a script, and each font keeps the
glyphs of characters that are shown.
"""

import base64
import hashlib
import html
import io
import logging
import os
import re
from pathlib import Path

import tinycss2
from fontTools import subset
from fontTools.ttLib import TTFont
from sphinx.util.logging import getLogger

logger = getLogger(__name__)
logging.getLogger("fontTools").setLevel("WARNING")  # not each glyph

LINK = re.compile(
    r'\s*<link (?=[^>]*rel="stylesheet")'
    r'[^>]*href="(?P<root>[^":]*?)_static/(?P<name>[^"?]+)[^>]*>'
)
SCRIPT = re.compile(r'<script [^>]*src="[^":]*?_static/([^"?]+)')
URL = re.compile(r"""url\((?!["']?(?:data:|#))["']?([^"')]+)["']?\)""")
FACE = re.compile(r"@font-face\s*\{[^}]*\}")

# Bootstrap's script names every class that Bootstrap knows. These are those
# by which it works on the book's pages: the menus in the header, the tooltips.
BOOTSTRAP = "bootstrap.js"
BY_BOOTSTRAP = {
    *("show", "fade", "disabled", "dropdown-menu", "dropdown-item"),
    *("tooltip", "tooltip-inner", "tooltip-arrow", "bs-tooltip-auto"),
}

# The two fonts that nearly every formula is set in.
EARLY = re.compile(r"url\((fonts/KaTeX_(?:Main-Regular|Math-Italic)\.[^)]+)\)")


# What the pages use


def words_of(pages, static):
    """All words of the pages and of the scripts that they load."""
    scripts = {name for page in pages for name in SCRIPT.findall(page)}
    own = [name for name in scripts if not name.endswith(BOOTSTRAP)]
    texts = [*pages, *((static / name).read_text("utf-8") for name in own)]
    return BY_BOOTSTRAP.union(*(re.findall(r"[\w-]+", t) for t in texts))


def characters_of_formulas(page):
    """What KaTeX's fonts show on a page, and some of what follows them."""
    formulas = re.findall(
        r'class="katex-html".*?(?=<(?!/?(?:span|svg|path)\b))', page, re.S
    )
    return set(html.unescape(re.sub("<[^>]*>", "", "".join(formulas))))


# Rules


def is_used(selector, words):
    """Whether each class, id and element of a selector is among the words.

    What stands in brackets, or in ``:not(...)`` and its like, is not asked:
    in doubt a rule stays.
    """
    asked = re.sub(r"\[[^]]*\]|::?[\w-]+(\([^()]*\))?", "", selector)
    return words.issuperset(re.findall(r"[A-Za-z_][\w-]*", asked))


def text_of(tokens):
    """The tokens' source, without comments and spare white space."""
    kept = [token for token in tokens if token.type != "comment"]
    return re.sub(r"\s+", " ", tinycss2.serialize(kept)).strip()


def purged(rules, words):
    """The source of those rules that are for something among the words."""
    kept = {}  # in order; a licence that stands twice is said once
    for rule in rules:
        if rule.type == "qualified-rule":
            each = re.split(r",\s*(?![^(]*\))", text_of(rule.prelude))
            used = ",".join(s for s in each if is_used(s, words))
            if used:
                kept[f"{used}{{{text_of(rule.content)}}}"] = None
        elif rule.type == "at-rule" and rule.content is not None:
            body = text_of(rule.content)
            if rule.lower_at_keyword in {"media", "supports"}:
                body = purged(tinycss2.parse_rule_list(rule.content), words)
            if body:
                head = f"@{rule.at_keyword} {text_of(rule.prelude)}".strip()
                kept[f"{head}{{{body}}}"] = None
        elif rule.type == "comment" and rule.value.startswith("!"):
            kept[rule.serialize()] = None
        elif rule.type == "error":
            logger.warning("a style sheet is wrong: %s", rule.message)
    return "\n".join(kept)


# Files


def read_sheet(path, static):
    """A style sheet with what it imports, its addresses seen from static."""

    def seen_from_static(found):
        return f"url({os.path.relpath(path.parent / found[1], static)})"

    def imported(found):
        return read_sheet((path.parent / found[1]).resolve(), static)

    css = path.read_text("utf-8").removeprefix("\ufeff")
    css = URL.sub(seen_from_static, css)
    return re.sub(r'@import\s+"([^":]+)"\s*;', imported, css)


def subset_font(path, characters):
    """A web font with no other glyphs than those of the characters."""
    font = TTFont(path, recalcTimestamp=False)
    subsetter = subset.Subsetter(subset.Options(layout_features=["*"]))
    subsetter.populate(text="".join(sorted(characters)))
    subsetter.subset(font)
    font.flavor = "woff2"
    file = io.BytesIO()
    font.save(file)
    return file.getvalue()


def with_small_fonts(css, formulas, static):
    """The css, with fonts that hold what it and the formulas show.

    The icons, which every page shows, come to lie in the css itself. A font
    that no rule names is left out.
    """
    icons = set(re.findall(r'"(.)"', css))  # such as content: "\f0c9"
    rest = FACE.sub("", css).replace("\\", "")

    def smaller(found):
        family = re.search(r"font-family:\s*([^;}]+)", found[0])[1]
        if family.replace("\\", "").strip("\"' ") not in rest:
            return ""
        url = re.search(r"url\(([^)]+\.woff2)\)", found[0])[1]
        if "Awesome" in family:
            data = subset_font(static / url, icons)
            code = base64.b64encode(data).decode("ascii")
            url = f"data:font/woff2;base64,{code}"
        else:
            data = subset_font(static / url, formulas)
            url = write(static, f"fonts/{Path(url).name}", data)
        source = f'src:url({url}) format("woff2")'
        return re.sub(r'src:(?:[^;"}]|"[^"]*")*', source, found[0])

    return FACE.sub(smaller, css)


def write(folder, name, data):
    """Write a file, a digest of it in its name, which is returned."""
    digest = hashlib.sha256(data).hexdigest()[:8]
    stem, _, ending = name.rpartition(".")
    path = folder / f"{stem}.{digest}.{ending}"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    return path.relative_to(folder).as_posix()


# Pages


def pages_of(site):
    """The book's pages, without the theme's own files and old addresses."""
    return sorted(
        page
        for page in site.rglob("*.html")
        if not page.relative_to(site).parts[0].startswith("_")
        and b'http-equiv="refresh"' not in page.read_bytes()
    )


def relinked(page, name, fonts):
    """The page with the first of its links renewed, and no other.

    If it has formulas, it asks for their fonts at once: lines that are set
    in another font first would move.
    """
    first = LINK.search(page)
    static = first["root"] + "_static/"
    links = f'\n  <link rel="stylesheet" href="{static}{name}">'
    if 'class="katex' in page:
        for font in fonts:
            links += f'\n  <link rel="preload" href="{static}{font}"'
            links += ' as="font" type="font/woff2" crossorigin>'
    return page[: first.start()] + links + LINK.sub("", page[first.end() :])


def lighten(site):
    """Give the pages of a site one style sheet, with no more than they use."""
    static = site / "_static"
    pages = {page: page.read_text("utf-8") for page in pages_of(site)}
    texts = pages.values()
    linked = {tuple(m["name"] for m in LINK.finditer(t)) for t in texts}
    if len(linked) != 1 or () in linked:
        logger.warning("expected one list of style sheets; got %s", linked)
        return
    css = ""
    for name in linked.pop():
        source = read_sheet(static / name, static)
        css += f"@media print {{{source}}}" if "print" in name else source
    css = purged(tinycss2.parse_stylesheet(css), words_of(texts, static))
    formulas = set().union(*map(characters_of_formulas, texts))
    css = with_small_fonts(css, formulas, static)
    name, fonts = write(static, "book.css", css.encode()), EARLY.findall(css)
    for page, text in pages.items():
        page.write_text(relinked(text, name, fonts), "utf-8")
