"""Write the whole book as one EPUB, from the built pages.

The pages' articles become a file each, in the order of `_toc.yml`, after a
title page; the solutions that the pages have folded come at the end. A
formula is MathML, a figure is a PNG with its description, a drawing is an
svg. A figure that moves is the picture that its page shows where no script
runs.
"""

from __future__ import annotations

import io
import zipfile
from html import escape
from pathlib import Path
from urllib.parse import unquote

from bs4 import Tag
from PIL import Image

from attnbook.files import replacing
from press import changes
from press.articles import (
    Book,
    inner_links,
    parse_lightly,
    title_page,
    whole_book,
)
from press.contents import Contents
from press.places import ROOT, SITE
from press.settings import Settings, is_placeholder
from press.tree import around, fragment, one, value

FILE = ROOT / "_build" / "averages-to-attention.epub"
STYLES = SITE / "epub.css"

#: Attributes of svg that have capital letters, by their names in small ones.
#: A parser of HTML makes all letters small; XHTML needs the capitals.
CAPITALS = {
    name.lower(): name
    for name in ("viewBox", "refX", "refY", "markerWidth", "markerHeight")
}

#: The invisible sign that MathML has between a function and what it is applied
#: to; and the elements of a base and its scripts, which must not contain it.
APPLIED = "\N{FUNCTION APPLICATION}"
SCRIPTS = ("msub", "msup", "msubsup", "munder", "mover", "munderover")

PAGE = """\
<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE html>
<html xmlns="http://www.w3.org/1999/xhtml" \
xmlns:epub="http://www.idpf.org/2007/ops" lang="en" xml:lang="en">
<head><title>{title}</title>
<link rel="stylesheet" type="text/css" href="book.css"/></head>
<body>
{body}
</body>
</html>
"""

CONTAINER = """\
<?xml version="1.0" encoding="utf-8"?>
<container version="1.0" \
xmlns="urn:oasis:names:tc:opendocument:xmlns:container">
<rootfiles><rootfile full-path="book/package.opf" \
media-type="application/oebps-package+xml"/></rootfiles>
</container>
"""

PACKAGE = """\
<?xml version="1.0" encoding="utf-8"?>
<package xmlns="http://www.idpf.org/2007/opf" version="3.0" \
unique-identifier="name" xml:lang="en">
<metadata xmlns:dc="http://purl.org/dc/elements/1.1/">
{metadata}
</metadata>
<manifest>
{manifest}
</manifest>
<spine>
{spine}
</spine>
</package>
"""

#: What the book offers to readers who cannot see it, in schema.org's words.
ACCESS = {
    "accessMode": ["textual", "visual"],
    "accessModeSufficient": ["textual,visual", "textual"],
    "accessibilityFeature": [
        "alternativeText",
        "MathML",
        "readingOrder",
        "structuralNavigation",
        "tableOfContents",
    ],
    "accessibilityHazard": ["none"],
    "accessibilitySummary": [
        "Every figure has a description, every formula is MathML with its "
        "TeX, and headings and contents lead to each part of the text."
    ],
}

TYPES = {
    ".xhtml": "application/xhtml+xml",
    ".css": "text/css",
    ".png": "image/png",
    ".svg": "image/svg+xml",
}


# A chapter as a file


def for_readers(part: Tag) -> None:
    """Change a chapter into what programs that show e-books understand.

    A formula keeps only its MathML, with its TeX as the alternative text. Side
    roads are unfolded. Drawings get the namespace and the capital letters that
    XHTML asks for, and attributes for scripts are removed.
    """
    for formula in part.find_all(class_="katex"):
        math = one(formula, "math").extract()
        math["alttext"] = one(math, "annotation").get_text().strip()
        mend(math)
        formula.replace_with(math)
    for title in part.select("details > summary > h3"):  # of a side road
        around(title, "details").unwrap()
        around(title, "summary").unwrap()
    for drawing in part.find_all("svg"):
        drawing["xmlns"] = "http://www.w3.org/2000/svg"
    for tag in part.find_all(True):
        for name in list(tag.attrs):
            if name.startswith("data-") or name in ("loading", "decoding"):
                del tag[name]
            elif name in CAPITALS:
                tag[CAPITALS[name]] = tag.attrs.pop(name)


def mend(math: Tag) -> None:
    r"""Correct three things that KaTeX writes wrongly in MathML.

    For `v_{\max}` it puts a function's invisible sign as a third element into
    a pair, which is removed. For `\bmod` it puts a row into a word, of which
    the text is kept. For `a \cos b` it leaves out the space that TeX sets
    around a function's name, which is added.
    """
    for sign in math.find_all("mo"):
        if sign.get_text() == APPLIED:
            if sign.parent and sign.parent.name in SCRIPTS:
                sign.decompose()
                continue
            function = sign.find_previous_sibling(True)
            argument = sign.find_next_sibling(True)
            before = function and function.find_previous_sibling(True)
            if function and before and before.name != "mo":
                function.insert_before(thin_space())
            if argument and argument.name not in ("mo", "mrow", "mspace"):
                sign.insert_after(thin_space())
        elif sign.find(True):
            sign.string = sign.get_text()


def thin_space() -> Tag:
    """The space that TeX sets around a function's name."""
    return fragment('<mspace width="0.1667em"></mspace>')


def file_of(part: Tag) -> str:
    """The name of a chapter's file.

    >>> file_of(fragment('<section id="05_masking"></section>'))
    '05_masking.xhtml'
    """
    return f"{value(part, 'id')}.xhtml"


def lead_to_files(parts: list[Tag]) -> None:
    """Let the links between chapters name the file that has their target.

    Before, they lead to ids, as in one document: `#05_masking--padding`.
    """
    files = {
        value(tag, "id"): file_of(part)
        for part in parts
        for tag in part.find_all(id=True)
    }
    chapters = {value(part, "id"): file_of(part) for part in parts}
    for link in inner_links(parts):
        name = value(link, "href")[1:]
        link["href"] = chapters.get(name) or f"{files[name]}#{name}"


def take_pictures(parts: list[Tag], site: Path) -> dict[str, bytes]:
    """Collect the pictures of the chapters as files of the EPUB.

    The chapters' images are changed to show these files. An svg stays as it
    is, all else becomes PNG.

    Args:
        parts: the chapters.
        site: the folder of the built pages, which has the pictures.

    Returns:
        the content of each file, by its name in the EPUB.
    """
    found = {}
    for part in parts:
        for image in part.find_all("img"):
            source = site / unquote(value(image, "src"))
            name = f"images/{source.stem}"
            if source.suffix == ".svg":
                name += ".svg"
                found[name] = source.read_bytes()
            else:
                name += ".png"
                found[name] = as_png(source)
            image["src"] = name
    return found


def as_png(source: Path) -> bytes:
    """A picture as PNG, which every e-book reader knows; not all know WebP."""
    packed = io.BytesIO()
    with Image.open(source) as image:
        image.save(packed, "PNG")
    return packed.getvalue()


def xhtml(title: str, body: str) -> bytes:
    """A whole XHTML file in UTF-8.

    Args:
        title: of the file, as plain text.
        body: what is in its body, in XHTML.
    """
    return PAGE.format(title=escape(title), body=body).encode()


# The package


def contents_page(book: Book) -> str:
    """The book's contents: parts, chapters, and their sections."""

    def entry(part: Tag) -> str:
        file = file_of(part)
        sections = ""
        for heading in part.select("section > section > h2"):
            place = value(around(heading, "section"), "id")
            words = escape(heading.get_text())
            sections += f'<li><a href="{file}#{place}">{words}</a></li>'
        below = f"<ol>{sections}</ol>" if sections else ""
        title = escape(one(part, "h1").get_text())
        return f'<li><a href="{file}">{title}</a>{below}</li>\n'

    lines = ""
    for caption, chapters in book.parts:
        entries = "".join(map(entry, chapters))
        lines += (
            f"<li><span>{escape(caption)}</span>\n<ol>{entries}</ol></li>\n"
            if caption
            else entries
        )
    first = file_of(book.chapters[0])
    return f"""\
<nav epub:type="toc" id="toc"><h1>Contents</h1>
<ol>{lines}</ol></nav>
<nav epub:type="landmarks" hidden=""><ol>
<li><a epub:type="toc" href="contents.xhtml">Contents</a></li>
<li><a epub:type="bodymatter" href="{first}">Start</a></li></ol></nav>"""


def metadata(settings: Settings, description: str, date: str) -> str:
    """What the EPUB says of itself to libraries and readers, as XML.

    It has title, author, licence, an identifier that changes with each
    release, and what the book offers to readers who cannot see it.

    Args:
        settings: title, author, licence and address of the book.
        description: the book in one sentence.
        date: of this edition, as year-month-day.
    """
    dublin = {
        "title": settings.title,
        "language": "en",
        "creator": settings.author,
        "rights": settings.licence,
        "description": description,
        "date": date,
    }
    if not is_placeholder(settings.url):
        dublin["source"] = settings.url
    name = changes.urn(f"{settings.title}, {settings.branch}")
    lines = [f'<dc:identifier id="name">{name}</dc:identifier>']
    lines += [
        f"<dc:{key}>{escape(text)}</dc:{key}>" for key, text in dublin.items()
    ]
    lines += [
        f'<meta property="schema:{key}">{text}</meta>'
        for key, texts in ACCESS.items()
        for text in texts
    ]
    lines.append(f'<meta property="dcterms:modified">{date}T00:00:00Z</meta>')
    return "\n".join(lines)


def manifest(files: dict[str, bytes]) -> str:
    """The list of the EPUB's files, as XML.

    Each line has the type of a file, and what a reading program has to know
    before it opens the file: whether it is the contents, and whether it has
    MathML or svg.
    """
    lines = []
    for count, (name, content) in enumerate(files.items()):
        has = {
            "nav": name == "contents.xhtml",
            "mathml": b"<math" in content,
            "svg": b"<svg" in content and name.endswith(".xhtml"),
        }
        properties = " ".join(key for key, there in has.items() if there)
        properties = f' properties="{properties}"' if properties else ""
        kind = TYPES[Path(name).suffix]
        lines.append(
            f'<item id="file-{count}" href="{name}" media-type="{kind}"'
            f"{properties}/>"
        )
    return "\n".join(lines)


def package(
    site: Path, settings: Settings, contents: Contents, date: str
) -> dict[str, bytes]:
    """The files of the EPUB, by their names in it, in their order.

    Raises:
        FileNotFoundError, ValueError: see `articles.whole_book`.
    """
    book = whole_book(site, contents, parse_lightly)
    front = title_page(settings, book)
    parts = [front, *book.chapters]
    for part in parts:
        for_readers(part)
    pictures = take_pictures(parts, site)
    motto = one(front, ".motto").get_text()
    files = {file_of(front): xhtml(settings.title, str(front))}
    files["contents.xhtml"] = xhtml("Contents", contents_page(book))
    lead_to_files(parts)
    for part in book.chapters:
        files[file_of(part)] = xhtml(one(part, "h1").get_text(), str(part))
    read = [f'<itemref idref="file-{n}"/>' for n in range(len(files))]
    files["book.css"] = STYLES.read_bytes()
    files |= pictures
    opf = PACKAGE.format(
        metadata=metadata(settings, motto, date),
        manifest=manifest(files),
        spine="\n".join(read),
    )
    return {"package.opf": opf.encode()} | files


def save(files: dict[str, bytes], path: Path) -> None:
    """Write the EPUB to a path, whole or not at all.

    No time is written into it, so that the same files give the same bytes.
    """
    entries = {
        "mimetype": b"application/epub+zip",
        "META-INF/container.xml": CONTAINER.encode(),
    } | {f"book/{name}": content for name, content in files.items()}
    with replacing(path) as file, zipfile.ZipFile(file, "w") as book:
        for name, content in entries.items():
            packed = name != "mimetype"  # is read without unpacking
            book.writestr(
                zipfile.ZipInfo(name),
                content,
                zipfile.ZIP_DEFLATED if packed else zipfile.ZIP_STORED,
            )


def make(site: Path, settings: Settings, contents: Contents) -> str:
    """Write the EPUB of a built site, and return a line that says so.

    Raises:
        FileNotFoundError, ValueError: see `articles.whole_book`.
    """
    date = changes.editions(changes.CHANGELOG.read_text("utf-8"))[0].date
    save(package(site, settings, contents, date), FILE)
    return f"{FILE.stat().st_size / 1e6:.1f} MB are at {FILE}"
