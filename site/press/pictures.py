"""The pages' pictures: smaller, of a known size, fetched when they are near.

Figures become WebP without loss, at half the bytes of matplotlib's PNG. With
its width and height in the page a picture has its room before it is there, and
nothing jumps. One below the first view is fetched when a reader comes near.
"""

import re
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import unquote

from PIL import Image

from press.styles import pages_of

IMAGE = re.compile(r'<img [^>]*?src="[^":]*?(_(?:images|static)/[^"?]+)[^>]*>')


def to_webp(png):
    """Put a WebP in a picture's place, its pixels as they were."""
    with Image.open(png) as image:
        image.save(png.with_suffix(".webp"), lossless=True, exact=True)
    png.unlink()


def size_of(path):
    """Width and height of a picture in CSS pixels."""
    if path.suffix != ".svg":
        with Image.open(path) as image:
            return image.size
    head = re.search(r"<svg[^>]*>", path.read_text("utf-8"))[0]
    sides = re.findall(r'\s(?:width|height)="([\d.]+)', head)
    if len(sides) != 2:
        sides = re.search(r'viewBox="\S+ \S+ (\S+) (\S+)"', head).groups()
    return [round(float(side)) for side in sides]


def settled(page, site):
    """A page with the tags of its pictures renewed."""
    heading = page.find("<h2", page.find("<article"))

    def renewed(found):
        tag, path = found[0], site / unquote(found[1])
        if not path.exists():
            tag = tag.replace(path.name, f"{path.stem}.webp")
            path = path.with_suffix(".webp")
        if " width=" not in tag:
            width, height = size_of(path)
            size = f'width="{width}" height="{height}"'
            tag = tag.replace("<img", f"<img {size}")
        if 0 < heading < found.start():
            tag = tag.replace("<img", '<img loading="lazy" decoding="async"')
        return tag

    return IMAGE.sub(renewed, page)


def settle(site):
    """Renew the pictures of a site and the tags that show them."""
    with ThreadPoolExecutor() as threads:
        [*threads.map(to_webp, (site / "_images").glob("*.png"))]
    for path in pages_of(site):
        path.write_text(settled(path.read_text("utf-8"), site), "utf-8")
