"""What a page says of itself: to search engines, and where it is linked to.

Its address, a description from its first words, and a card: the picture that
messengers and networks show beside a link, with the page's title drawn on
card.png; templates/layout.html says all this. The addresses follow from the
repository's, which `_config.yml` names.
"""

from __future__ import annotations

import html
import re
import textwrap
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import matplotlib
from docutils import nodes
from PIL import Image, ImageDraw, ImageFont
from sphinx.application import Sphinx
from sphinx.config import Config

from press.places import SITE

# The logo, the book's name and its motto, in the size that networks ask for.
CARD = SITE / "card.png"
#: The address that `site_address` gives while the owner is a placeholder.
NOWHERE = "https://owner.github.io/"

FONTS = Path(matplotlib.get_data_path()) / "fonts" / "ttf"


def site_address(repository: str) -> str:
    """Where GitHub publishes the pages of a repository.

    >>> site_address("https://github.com/OWNER/averages-to-attention")
    'https://owner.github.io/averages-to-attention/'
    """
    owner, name = urlsplit(repository).path.strip("/").split("/")
    return f"https://{owner.lower()}.github.io/{name}/"


def find_address(app: Sphinx, config: Config) -> None:
    """Set the address at which the site will be published, if none is set.

    It follows from the repository's address. Sphinx puts it into the pages.
    """
    repository = config.html_theme_options["repository_url"]
    config.html_baseurl = config.html_baseurl or site_address(repository)


def public_address(config: Config) -> str:
    """The address of the published site; empty while there is none yet."""
    site = config.html_baseurl
    return "" if site.startswith(NOWHERE) else site


def draw_card(title: str) -> Image.Image:
    """The card of a page: its title, large, under the name of the book."""
    card = Image.open(CARD).convert("RGB")
    text = textwrap.fill(title, 28)
    font = ImageFont.truetype(FONTS / "DejaVuSans-Bold.ttf", 60)
    ImageDraw.Draw(card).text((80, 236), text, "#1b1f24", font, spacing=16)
    return card


def first_words(doctree: nodes.document) -> str:
    """The first words of a page, at most 160 characters, for search engines.

    Paragraphs with a badge or a formula are left out.
    """
    first = next(doctree.findall(nodes.section), doctree)
    words = " ".join(
        part.astext()
        for part in first.children
        if isinstance(part, nodes.paragraph)
        and not any(part.findall(nodes.image))  # a badge
        and not any(part.findall(nodes.math))
    )
    return textwrap.shorten(words, 160, placeholder=" …")


def describe(
    app: Sphinx, pagename: str, templatename: str, context: Any, doctree: Any
) -> None:
    """Give a page's template its description, its address and its card.

    The card is drawn here, and written beside the site's pictures.
    """
    site = app.config.html_baseurl
    context["base"] = urlsplit(site).path  # for 404, sent from any depth
    if pagename == app.config.root_doc:
        context["pageurl"] = site
    if pagename == "404" or not public_address(app.config):
        context["pageurl"] = None  # it has none, or the book has none yet
    if doctree is None:
        return
    title = html.unescape(re.sub("<.*?>", "", context["title"]))
    file = Path(app.outdir, "_images", "cards", f"{pagename}.png")
    file.parent.mkdir(parents=True, exist_ok=True)
    draw_card(title).save(file)
    context.update(
        plain_title=title,
        description=first_words(doctree),
        card=f"{site}_images/cards/{file.name}",
    )


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("config-inited", find_address)
    app.connect("html-page-context", describe)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
