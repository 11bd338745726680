"""One style sheet and small fonts: what the pages use of the theme's.

The theme brings Bootstrap and all of Font Awesome, some 80 kB of compressed
rules and 275 kB of icons, of which a page shows a few. Once all pages are
written they are read: the style sheets that they link become one, whose rules
are for names that stand on a page or in a script, and each font keeps the
glyphs of characters that are shown.
"""

from __future__ import annotations

import base64
import hashlib
import io
import logging
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import tinycss2
from fontTools import subset
from fontTools.ttLib import TTFont
from sphinx.util.logging import getLogger

from press.markup import Page, StartTag

logger = getLogger(__name__)
logging.getLogger("fontTools").setLevel("WARNING")  # not a line for each glyph

#: An address of a file in a style sheet. Content that is written there itself
#: (`data:`), and ids (`#`), are not found.
URL = re.compile(r"""url\((?!["']?(?:data:|#))["']?([^"')]+)["']?\)""")
FACE = re.compile(r"@font-face\s*\{[^}]*\}")

#: Bootstrap's script names every class that Bootstrap has, so names in it say
#: nothing. Of these classes the book's pages need its rules: for the menus in
#: the header, and for the tooltips.
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

#: The two fonts in which nearly every formula is set; a page asks for them
#: early.
EARLY = re.compile(r"url\((fonts/KaTeX_(?:Main-Regular|Math-Italic)\.[^)]+)\)")


# What the pages use


def static_file(address: str) -> str:
    """The name in _static/ of a file that a page loads; empty for others.

    >>> static_file("_static/book.css?v=1")
    'book.css'
    """
    root, found, name = address.partition("?")[0].partition("_static/")
    return name if found and ":" not in root else ""


def words_of(pages: Iterable[Page], static: Path) -> set[str]:
    """All words of the pages and of the scripts that they load.

    A script may give an element a class, or ask for an element by its id,
    and only a word of the script tells of it.
    """
    scripts = {
        static_file(tag.attributes.get("src", ""))
        for page in pages
        for tag in page.tags("script")
    }
    texts = [page.markup.html for page in pages]
    for name in sorted(scripts - {""}):
        if not name.endswith(BOOTSTRAP):
            texts.append((static / name).read_text("utf-8"))
    return BY_BOOTSTRAP.union(*(re.findall(r"[\w-]+", t) for t in texts))


# Rules


def is_used(selector: str, words: set[str]) -> bool:
    """Whether each class, id and element of a selector is among the words.

    What stands in brackets, or in ``:not(...)`` and its like, is not looked
    at: in doubt a rule stays.
    """
    asked = re.sub(r"\[[^]]*\]|::?[\w-]+(\([^()]*\))?", "", selector)
    return words.issuperset(re.findall(r"[A-Za-z_][\w-]*", asked))


def text_of(tokens: list[Any]) -> str:
    """The source of CSS tokens, without comments and spare white space."""
    kept = [token for token in tokens if token.type != "comment"]
    return re.sub(r"\s+", " ", tinycss2.serialize(kept)).strip()


def purged(rules: list[Any], words: set[str]) -> str:
    """The source of those rules that are for something among the words.

    Args:
        rules: as tinycss2 has read them.
        words: all that stands on a page or in a script.
    """
    kept: dict[str, None] = {}  # in order; a licence written twice stays once
    for rule in rules:
        if text := purged_rule(rule, words):
            kept[text] = None
    return "\n".join(kept)


def purged_rule(rule: Any, words: set[str]) -> str:
    """The source of a rule as far as it is used; empty if it is not."""
    if rule.type == "qualified-rule":
        selectors = re.split(r",\s*(?![^(]*\))", text_of(rule.prelude))
        used = ",".join(s for s in selectors if is_used(s, words))
        return f"{used}{{{text_of(rule.content)}}}" if used else ""
    if rule.type == "at-rule" and rule.content is not None:
        body = text_of(rule.content)
        if rule.lower_at_keyword in {"media", "supports"}:
            body = purged(tinycss2.parse_rule_list(rule.content), words)
        head = f"@{rule.at_keyword} {text_of(rule.prelude)}".strip()
        return f"{head}{{{body}}}" if body else ""
    if rule.type == "comment" and rule.value.startswith("!"):  # a licence
        return rule.serialize()
    if rule.type == "error":
        logger.warning("a style sheet is wrong: %s", rule.message)
    return ""


# Files


def read_sheet(path: Path, static: Path) -> str:
    """A style sheet, with the sheets that it imports put into it.

    Addresses in it are changed to be relative to the folder `static`, since
    the one style sheet of the site will lie there.
    """

    def seen_from_static(found: re.Match[str]) -> str:
        return f"url({os.path.relpath(path.parent / found[1], static)})"

    def imported(found: re.Match[str]) -> str:
        return read_sheet((path.parent / found[1]).resolve(), static)

    css = path.read_text("utf-8").removeprefix("\ufeff")
    css = URL.sub(seen_from_static, css)
    return re.sub(r'@import\s+"([^":]+)"\s*;', imported, css)


def subset_font(path: Path, characters: set[str]) -> bytes:
    """A web font with no other glyphs than those of the characters."""
    font = TTFont(path, recalcTimestamp=False)
    subsetter = subset.Subsetter(subset.Options(layout_features=["*"]))
    subsetter.populate(text="".join(sorted(characters)))
    subsetter.subset(font)
    font.flavor = "woff2"
    file = io.BytesIO()
    font.save(file)
    return file.getvalue()


def with_small_fonts(css: str, formulas: set[str], static: Path) -> str:
    """A style sheet whose fonts have only the characters that are shown.

    The icons, which every page shows, are put into the style sheet itself. The
    other fonts are written as new files, with the characters of all formulas.
    A font that no rule names is left out.

    Args:
        css: the style sheet.
        formulas: the characters of all formulas.
        static: the folder of the fonts, to which addresses are relative.
    """
    icons = set(re.findall(r'"(.)"', css))  # such as content: "\f0c9"
    rest = FACE.sub("", css).replace("\\", "")

    def smaller(found: re.Match[str]) -> str:
        family = re.findall(r"font-family:\s*([^;}]+)", found[0])[0]
        if family.replace("\\", "").strip("\"' ") not in rest:
            return ""
        (url,) = re.findall(r"url\(([^)]+\.woff2)\)", found[0])
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


def write(folder: Path, name: str, data: bytes) -> str:
    """Write a file with a digest of its content in its name.

    A browser keeps a file as long as the name is the same, so the name has to
    change with the content.

    Returns:
        the new name, relative to the folder.
    """
    digest = hashlib.sha256(data).hexdigest()[:8]
    stem, _, ending = name.rpartition(".")
    path = folder / f"{stem}.{digest}.{ending}"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    return path.relative_to(folder).as_posix()


# Pages


class Sheet(NamedTuple):
    """A style sheet that a page links, and the media that it is for."""

    name: str
    media: str


def links_of(page: Page) -> list[StartTag]:
    """The tags by which a page links the style sheets of the site."""
    return [
        tag
        for tag in page.tags("link")
        if tag.attributes.get("rel") == "stylesheet"
        and static_file(tag.attributes["href"])
    ]


def sheets_of(page: Page) -> tuple[Sheet, ...]:
    """The style sheets that a page links, in their order."""
    return tuple(
        Sheet(
            static_file(tag.attributes["href"]),
            tag.attributes.get("media", ""),
        )
        for tag in links_of(page)
    )


def relink(page: Page, name: str, fonts: list[str]) -> None:
    """Let a page link one style sheet in place of all that it links.

    If it has formulas, it asks for their fonts at once: lines that are set
    in another font first would move.
    """
    first, *others = links_of(page)
    static = first.attributes["href"].partition("_static/")[0] + "_static/"
    links = f'\n  <link rel="stylesheet" href="{static}{name}">'
    if page.markup.formulas:
        for font in fonts:
            links += f'\n  <link rel="preload" href="{static}{font}"'
            links += ' as="font" type="font/woff2" crossorigin>'
    for tag in (first, *others):
        before = page.markup.html[: tag.start].rstrip()
        text = links if tag is first else ""
        page.markup.replace(len(before), tag.end, text)


def lighten(pages: list[Page], site: Path) -> None:
    """Give the pages of a site one style sheet, with no more than they use.

    If they do not all link the same style sheets, nothing is done, and a
    warning fails the build.
    """
    static = site / "_static"
    linked = {sheets_of(page) for page in pages}
    if len(linked) != 1 or () in linked:
        logger.warning("expected one list of style sheets; got %s", linked)
        return
    css = ""
    for name, media in linked.pop():
        source = read_sheet(static / name, static)
        css += f"@media {media}{{{source}}}" if media else source
    css = purged(tinycss2.parse_stylesheet(css), words_of(pages, static))
    formulas = set().union(*(page.markup.formulas for page in pages))
    css = with_small_fonts(css, formulas, static)
    name = write(static, "book.css", css.encode())
    fonts = EARLY.findall(css)
    for page in pages:
        relink(page, name, fonts)
