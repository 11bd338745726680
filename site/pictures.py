"""The pages' pictures: smaller, of a known size, fetched when they are near.

Figures become WebP without loss, at half the bytes of matplotlib's PNG. With
its width and height in the page a picture has its room before it is there, and
nothing jumps. One below the first view is fetched when a reader comes near.
"""

import re
from pathlib import Path
from urllib.parse import unquote

from PIL import Image
from sphinx.util import logging
from styles import pages_of

logger = logging.getLogger(__name__)

IMAGE = re.compile(r"<img [^>]*?/?>")


def to_webp(png):
    """Write a picture as WebP, its pixels as they were; the new path."""
    webp = png.with_suffix(".webp")
    with Image.open(png) as image:
        image.save(webp, lossless=True, quality=75, method=4, exact=True)
    return webp


def size_of(path):
    """Width and height of a picture in CSS pixels, or None."""
    if path.suffix != ".svg":
        with Image.open(path) as image:
            return image.size
    head = re.search(r"<svg[^>]*>", path.read_text("utf-8"))[0]
    sides = [
        re.search(rf'\s{side}="([\d.]+)(?:px)?"', head)
        for side in ("width", "height")
    ]
    if all(sides):
        return tuple(round(float(side[1])) for side in sides)
    box = re.search(
        r'viewBox="[\d.-]+[ ,]+[\d.-]+[ ,]+([\d.]+)[ ,]+([\d.]+)"', head
    )
    return (round(float(box[1])), round(float(box[2]))) if box else None


def with_attributes(tag, attributes):
    """The tag with those of the attributes that it does not have."""
    new = "".join(
        f' {name}="{value}"'
        for name, value in attributes.items()
        if f" {name}=" not in tag
    )
    return re.sub(r"\s*(/?)>$", rf"{new}\1>", tag)


def is_in_first_view(page, place):
    """Whether a picture stands in the sidebar's head or under the title."""
    article = page.find("<article")
    heading = page.find("<h2", article)
    return article < place and (place < heading or heading < 0)


def settle(site):
    """Renew the pictures of a site and the tags that show them."""
    figures = {
        png.name: to_webp(png)
        for png in sorted((site / "_images").glob("*.png"))
    }
    for path in pages_of(site):
        page = path.read_text("utf-8")

        def renewed(found):
            tag = found[0]
            source = re.search(
                r'\ssrc="([^":]*?)(_(?:images|static)/[^"?]+)', tag
            )
            if source is None:
                return tag
            file = site / unquote(source[2])
            if webp := figures.get(file.name):
                tag = tag.replace(file.name, webp.name)
                file = webp
            if size := size_of(file):
                tag = with_attributes(
                    tag, {"width": size[0], "height": size[1]}
                )
            else:
                logger.warning("%s: %s tells no size", path.name, file.name)
            if "logo__image" in tag or is_in_first_view(page, found.start()):
                return tag
            return with_attributes(
                tag, {"loading": "lazy", "decoding": "async"}
            )

        path.write_text(IMAGE.sub(renewed, page), "utf-8")
    for png in figures:
        (site / "_images" / png).unlink()


def after_build(app, exception):
    if exception is None and app.builder.name == "html":
        settle(Path(app.outdir))


def setup(app):
    # After the theme, at the usual priority, has copied its logos.
    app.connect("build-finished", after_build, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
