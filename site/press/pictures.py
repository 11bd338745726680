"""The pages' pictures: smaller, of a known size, fetched when they are near.

Figures become WebP without loss, at half the bytes of matplotlib's PNG. A
page that says how wide and how high a picture is keeps room for it, so that
nothing moves when the picture arrives. A picture below the first view is
fetched when a reader comes near it.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import unquote, urlsplit

from PIL import Image

from press.markup import Markup, Page, StartTag


def to_webp(png: Path) -> None:
    """Replace a PNG file by a WebP file of exactly the same pixels."""
    with Image.open(png) as image:
        image.save(png.with_suffix(".webp"), lossless=True, exact=True)
    png.unlink()


def pack(site: Path) -> None:
    """Replace every PNG that the pages show by a WebP."""
    with ThreadPoolExecutor() as threads:
        for _ in threads.map(to_webp, (site / "_images").glob("*.png")):
            pass  # an error in a thread is raised here


def size_of(picture: Path) -> tuple[int, int]:
    """Width and height of a picture in CSS pixels.

    Raises:
        ValueError: an svg says neither its size nor its view box.
    """
    if picture.suffix != ".svg":
        with Image.open(picture) as image:
            return image.size
    for root in Markup(picture.read_text("utf-8"), {"svg"}).tags[:1]:
        sides = [root.attributes.get(side, "") for side in ("width", "height")]
        if not all(sides):
            sides = root.attributes.get("viewbox", "").split()[2:]
        if len(sides) == 2:
            width, height = (float(side.removesuffix("px")) for side in sides)
            return round(width), round(height)
    raise ValueError(
        f"{picture.name} has no size; expected an svg with a width and a "
        "height, or with a viewBox"
    )


def file_of(tag: StartTag) -> str:
    """The picture that a tag shows, as a path in the site.

    It is empty for a picture that the build did not put there.
    """
    address = urlsplit(tag.attributes.get("src", ""))
    folder = address.path.lstrip("./").partition("/")[0]
    if address.scheme or folder not in ("_images", "_static"):
        return ""
    return unquote(address.path)


def settle(page: Page, site: Path) -> None:
    """Change the tags of a page's pictures, after these were made WebP.

    A tag then names the new file, says how large the picture is, and, below
    the first view, lets a browser fetch it late.
    """
    view_ends = end_of_first_view(page)
    for tag in page.tags("img"):
        name = file_of(tag)
        if not name:
            continue
        picture = site / name
        renewed = tag
        if not picture.exists():
            packed = picture.with_suffix(".webp")
            text = tag.text.replace(picture.name, packed.name)
            renewed = tag._replace(text=text)
            picture = packed
        attributes: dict[str, str] = {}
        if tag.start > view_ends:
            attributes |= {"loading": "lazy", "decoding": "async"}
        if "width" not in tag.attributes:
            width, height = size_of(picture)
            attributes |= {"width": str(width), "height": str(height)}
        page.markup.replace(tag.start, tag.end, renewed.having(attributes))


def end_of_first_view(page: Page) -> int:
    """The place of the article's first section; else the page's end."""
    for article in page.tags("article"):
        for heading in page.tags("h2"):
            if heading.start > article.start:
                return heading.start
    return len(page.markup.html)
