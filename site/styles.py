"""The book's style sheets and web fonts, cut down to what its pages use.

The theme brings Bootstrap and all of Font Awesome, some 80 kB of compressed
rules and 275 kB of icons, of which a page shows a few. Once all pages are
written they are read: the style sheets that they link become one, whose rules
are for something that stands on a page or that a script names, and each font
keeps the glyphs of characters that are shown. Code loses the elements that
give a word no other look than it has without.
"""

import base64
import hashlib
import html
import io
import logging
import posixpath
import re
from pathlib import Path
from urllib.parse import urlsplit

import tinycss2
from fontTools import subset
from fontTools.ttLib import TTFont
from sphinx.util.logging import getLogger

logger = getLogger(__name__)
logging.getLogger("fontTools").setLevel("WARNING")  # not each glyph

LINK = re.compile(
    r'\s*<link (?=[^>]*rel="stylesheet")'
    r'[^>]*href="(?P<root>[^":]*?)_static/(?P<name>[^"?]+)[^"]*"[^>]*>'
)

# Bootstrap has a rule for every part that it knows, and names them all in
# its script. These are the classes by which it works on the book's pages:
# the menus in the header, and the tooltips.
BOOTSTRAP = "bootstrap.js"
BY_BOOTSTRAP = {
    "show",
    "fade",
    "disabled",
    "dropdown-menu",
    "dropdown-item",
    "tooltip",
    "tooltip-inner",
    "tooltip-arrow",
    "bs-tooltip-auto",
}

# The two fonts that nearly every formula is set in.
EARLY_FONTS = re.compile(
    r"url\((fonts/KaTeX_(?:Main-Regular|Math-Italic)\.[^)]+)\)"
)

# How Pygments' style sheets say what code, or one of its tokens, looks like.
HIGHLIGHT = re.compile(
    r'(html\[data-theme="\w+"\]) \.highlight(?: \.(\w+))?\s*\{([^}]*)\}'
)

SCRIPT = re.compile(r'<script [^>]*src="[^":]*?_static/([^"?]+)')


# What the pages use


def words_of(page):
    """Elements, ids and classes of a page, and all words of its scripts."""
    words = {name.lower() for name in re.findall(r"<([a-zA-Z][\w-]*)", page)}
    for value in re.findall(r'\s(?:class|id)="([^"]*)"', page):
        words.update(html.unescape(value).split())
    words.update(re.findall(r"--[\w-]+", page))  # variables
    for script in re.findall(r"<script[^>]*>(.*?)</script>", page, re.S):
        words |= words_of_script(script)
    return words


def words_of_all(pages, static):
    """The words of pages and of the scripts that they load."""
    words = BY_BOOTSTRAP.union(*map(words_of, pages))
    for script in {name for page in pages for name in SCRIPT.findall(page)}:
        if not script.endswith(BOOTSTRAP):
            words |= words_of_script((static / script).read_text("utf-8"))
    return words


def words_of_script(script):
    return set(re.findall(r"[\w-]+", script))


def characters_of_formulas(page):
    """What KaTeX's fonts show on a page."""
    shown, depth = set(), 0
    for end, attributes, text in re.findall(r"<(/?)span([^>]*)>([^<]*)", page):
        if depth:
            depth += -1 if end else 1
        elif 'class="katex-html"' in attributes:
            depth = 1
        if depth:
            shown.update(html.unescape(text))
    return shown


def characters_of_icons(css):
    """What rules make a browser show, such as content: "\\f0c9"."""
    return set(re.findall(r'"(.)"', css))


# Rules


def is_used(selector, words):
    """Whether each class, id and element of a selector is among the words.

    What stands in ``:not(...)`` and its like, or in brackets, is not asked:
    in doubt a rule stays.
    """
    before = ""
    for token in selector:
        if token.type == "hash" and token.value not in words:
            return False
        if token.type == "ident" and before != ":":
            name = token.value if before == "." else token.lower_value
            if name not in words:
                return False
        before = token.value if token.type == "literal" else ""
    return True


def split_at_commas(tokens):
    parts = [[]]
    for token in tokens:
        if token.type == "literal" and token.value == ",":
            parts.append([])
        else:
            parts[-1].append(token)
    return parts


def text_of(tokens):
    """The tokens' source, without comments and spare white space."""
    return "".join(
        " " if token.type == "whitespace" else token.serialize()
        for token in tokens
        if token.type != "comment"
    ).strip()


def purged(rules, words):
    """The source of those rules that are for something among the words."""
    kept = []
    for rule in rules:
        if rule.type == "qualified-rule":
            selectors = [
                text_of(selector)
                for selector in split_at_commas(rule.prelude)
                if is_used(selector, words)
            ]
            if selectors and (body := text_of(rule.content)):
                kept.append(f"{','.join(selectors)}{{{body}}}")
        elif rule.type == "at-rule" and rule.content is not None:
            head = f"@{rule.at_keyword} {text_of(rule.prelude)}".strip()
            body = text_of(rule.content)
            if rule.lower_at_keyword in {"media", "supports"}:
                body = purged(tinycss2.parse_rule_list(rule.content), words)
            if body:
                kept.append(f"{head}{{{body}}}")
        elif rule.type == "comment" and rule.value.startswith("!"):
            licence = rule.serialize()
            if licence not in kept:
                kept.append(licence)
        elif rule.type == "error":
            logger.warning("css, line %s: %s", rule.source_line, rule.message)
    return "\n".join(kept)


def without_idle(css, words):
    """Without animations, fonts and variables that nothing names."""
    for kind, name in (
        ("keyframes", r"@keyframes ([\w-]+)"),
        ("font-face", r"font-family:\s*([^;}]+)"),
    ):
        block = rf"@{kind}[^{{]*\{{(?:[^{{}}]|\{{[^{{}}]*\}})*\}}\n?"
        others = re.sub(block, "", css).replace("\\", "")

        def if_named(found):
            named = re.search(name, found[0])[1].replace("\\", "")
            return found[0] if named.strip("\"' ") in others else ""

        css = re.sub(block, if_named, css)

    before = None
    while css != before:  # a variable may be read by an idle one alone
        before = css
        read = words | set(re.findall(r"var\(\s*(--[\w-]+)", css))
        css = re.sub(
            r'(?<=[{;])\s*(--[\w-]+):(?:[^;}"]|"[^"]*")*;?',
            lambda found: found[0] if found[1] in read else "",
            css,
        )
    return css


def purge(css, words):
    """Of a style sheet what is for elements, ids and classes of that name.

    The words are names that stand on a page or in a script.
    """
    return without_idle(purged(tinycss2.parse_stylesheet(css), words), words)


# Code


def plain_tokens(css):
    """Pygments' classes that look like code without one, in every theme."""
    looks = {}
    for theme, name, look in HIGHLIGHT.findall(css):
        look = {part.strip() for part in look.split(";")} - {""}
        looks.setdefault(name, {})[theme] = look
    code = looks.pop("", {})
    return {
        name
        for name, themes in looks.items()
        if themes.keys() == code.keys()
        and all(look <= code[theme] for theme, look in themes.items())
    }


def without_plain_tokens(page, names):
    """The page's code, names and brackets no longer in elements of their own.

    They are two thirds of the elements of code, and that is a third of all.
    """
    if not names:
        return page
    token = re.compile(rf'<span class="(?:{"|".join(names)})">([^<]*)</span>')
    return re.sub(
        r'<div class="highlight"><pre>.*?</pre>',
        lambda block: token.sub(r"\1", block[0]),
        page,
        flags=re.S,
    )


# Files


def read_sheet(path, static):
    """A style sheet with what it imports, its addresses seen from static."""
    folder = posixpath.dirname(path.relative_to(static).as_posix())
    css = path.read_text("utf-8").removeprefix("\ufeff")

    def seen_from_static(found):
        url = found[1].strip("\"' ")
        if urlsplit(url).scheme or url.startswith(("/", "#")):
            return found[0]
        return f"url({posixpath.normpath(posixpath.join(folder, url))})"

    def imported(found):
        return read_sheet((path.parent / found[1]).resolve(), static)

    css = re.sub(r"url\(((?!\s*[\"']?data:)[^)]+)\)", seen_from_static, css)
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

    The icons, which every page shows, come to lie in the css itself.
    """
    icons = characters_of_icons(css)

    def smaller(found):
        urls = re.findall(r"url\(([^)]+\.woff2)[^)]*\)", found[0])
        if not urls:
            logger.warning("a font face has no woff2 file: %s", found[0])
            return found[0]
        if "Awesome" in found[0]:
            data = subset_font(static / urls[0], icons)
            code = base64.b64encode(data).decode("ascii")
            url = f"data:font/woff2;base64,{code}"
        else:
            data = subset_font(static / urls[0], formulas)
            url = f"fonts/{Path(urls[0]).stem}.{digest(data)}.woff2"
            write(static / url, data)
        source = f'src:url({url}) format("woff2")'
        return re.sub(r'src:(?:[^;"}]|"[^"]*")*', source, found[0])

    return re.sub(r"@font-face\s*\{[^}]*\}", smaller, css)


def digest(data):
    return hashlib.sha256(data).hexdigest()[:8]


def write(path, data):
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)


# Pages


def pages_of(site):
    """The book's pages, without the theme's own files."""
    return sorted(
        page
        for page in site.rglob("*.html")
        if not page.relative_to(site).parts[0].startswith("_")
    )


def media_of(link):
    found = re.search(r'\smedia="([^"]+)"', link)
    return found[1] if found else None


def joined(links, static):
    """The source of the style sheets that a page links, in their order."""
    sheets = []
    for name, media in links:
        css = read_sheet(static / name, static)
        sheets.append(f"@media {media} {{\n{css}\n}}" if media else css)
    return "\n".join(sheets)


def lighten(site):
    """Give the pages of a site one style sheet, with no more than they use.

    Pages that link the same sheets share one; in the book all do.
    """
    static = site / "_static"
    texts = {page: page.read_text("utf-8") for page in pages_of(site)}
    groups = {}
    for page, text in texts.items():
        links = tuple(
            (found["name"], media_of(found[0]))
            for found in LINK.finditer(text)
        )
        groups.setdefault(links, []).append(page)
    for links, pages in groups.items():
        if not links:
            names = ", ".join(page.name for page in pages)
            logger.warning("no style sheet to make lighter on %s", names)
            continue
        css = joined(links, static)
        plain = plain_tokens(css)
        for page in pages:
            texts[page] = without_plain_tokens(texts[page], plain)
        sources = [texts[page] for page in pages]
        css = purge(css, words_of_all(sources, static))
        formulas = set().union(*map(characters_of_formulas, sources))
        css = with_small_fonts(css, formulas, static)
        fonts = EARLY_FONTS.findall(css)
        name = f"book.{digest(css.encode('utf-8'))}.css"
        write(static / name, css.encode("utf-8"))
        for page in pages:
            page.write_text(relinked(texts[page], name, fonts), "utf-8")


def relinked(page, name, fonts=()):
    """The page with the first of its links renewed, and no other.

    If it has formulas, it asks for their fonts at once: lines that are set
    in another font first would move.
    """
    first = LINK.search(page)
    static = first["root"] + "_static/"
    link = f'\n  <link rel="stylesheet" href="{static}{name}">'
    if 'class="katex' in page:
        link += "".join(
            f'\n  <link rel="preload" href="{static}{font}" as="font"'
            ' type="font/woff2" crossorigin>'
            for font in fonts
        )
    page = page[: first.start()] + "\0" + page[first.end() :]
    return LINK.sub("", page).replace("\0", link)


def after_build(app, exception):
    if exception is None and app.builder.name == "html":
        lighten(Path(app.outdir))


def setup(app):
    # After the other extensions, at the usual priority, have copied theirs.
    app.connect("build-finished", after_build, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
