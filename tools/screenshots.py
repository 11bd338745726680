"""Pictures of the built book, for people to look at.

    python tools/screenshots.py

renews those that the README shows, from the pages that `make book` has built.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from notebooks import ROOT
from PIL import Image
from playwright.sync_api import Browser, Page

from press.browser import open_chromium, read_whole, serve
from press.places import HTML as SITE

#: True on a page when the fonts are loaded, nothing moves any more, and the
#: pictures that are in view are loaded.
IS_SHOWN = """
document.fonts.status === "loaded" && !document.getAnimations().length
&& [...document.images].every((image) => {
  const { top, bottom } = image.getBoundingClientRect();
  const hidden = !image.checkVisibility();  // in what is folded
  return image.complete || hidden || bottom <= 0 || top >= innerHeight;
})
"""

#: The colours of a picture. A page has few, and fewer make a smaller file.
COLOURS = 256


def as_it_is(page: Page) -> None:
    """Do nothing to a page, for a picture of the page as it opens."""


def use_scale(page: Page) -> None:
    """Move the slider of chapter 4's figure to where softmax is sharp."""
    figure = page.locator('[data-explore="scale"]').first
    page.locator("details", has=figure).locator("> summary").click()
    figure.locator("input[type=range]").first.fill("2")


@dataclass(frozen=True)
class Shot:
    """A picture of a page of the built book.

    Attributes:
        name: of the picture's file, without its ending.
        page: the page's name, as in its address.
        top: a CSS selector of the element at the top of the picture.
        use: what is done on the page before the picture is taken.
        theme: whether the page is light or dark.
        size: width and height in pixels.
    """

    name: str
    page: str
    top: str = "body"
    use: Callable[[Page], None] = as_it_is
    theme: Literal["light", "dark"] = "light"
    size: tuple[int, int] = (1280, 900)


#: The pictures that the README shows.
README = [
    Shot(
        "screenshot",
        "05_masking",
        top="#the-mask-in-the-picture",
        size=(1280, 1130),
    ),
    Shot(
        "screenshot-figure",
        "04_scaled_dot_product_attention",
        top='[data-explore="scale"]',
        use=use_scale,
        size=(1280, 800),
    ),
]

#: More pictures, for somebody who looks over a change of the pages.
PAGES = [
    Shot("index", "index"),
    Shot(
        "04-figure",
        "04_scaled_dot_product_attention",
        top='[data-explore="scale"]',
        use=use_scale,
    ),
    Shot("05-dark", "05_masking", top="#padding", theme="dark"),
    Shot("11", "11_small_language_model", top="article h2"),
    Shot("14-phone", "14_kv_cache", top="article h2", size=(360, 740)),
]


def take(browser: Browser, address: str, shot: Shot, folder: Path) -> Path:
    """Take one picture, and return the path of its file.

    Args:
        browser: an open browser.
        address: the address at which the book is served.
        shot: the picture.
        folder: where the file is written; the folder is made if needed.
    """
    width, height = shot.size
    context = browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme=shot.theme,
        reduced_motion="reduce",
        bypass_csp=True,  # Playwright asks a second time by eval
    )
    page = context.new_page()
    read_whole(page, f"{address}{shot.page}.html")
    shot.use(page)
    page.locator(shot.top).first.evaluate(
        "place => scrollBy({top: place.getBoundingClientRect().top - 80,"
        " behavior: 'instant'})"
    )
    page.wait_for_function(IS_SHOWN)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{shot.name}.png"
    few = Image.open(io.BytesIO(page.screenshot())).quantize(COLOURS)
    part = path.with_suffix(".part")
    few.save(part, "png", optimize=True)
    os.replace(part, path)
    context.close()
    return path


def main() -> int:
    """Renew the pictures of the README, and return an exit status."""
    if not (SITE / "index.html").is_file():
        print(
            "the book is not built; expected _build/html; run: make book",
            file=sys.stderr,
        )
        return 1
    with serve(SITE) as address, open_chromium() as browser:
        for shot in README:
            path = take(browser, address, shot, ROOT / "images")
            print(f"{path.relative_to(ROOT)}: {path.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
