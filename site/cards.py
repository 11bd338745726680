"""What a page says of itself: to search engines, and where it is linked to.

Its address, a description from its first words, and a card: the picture that
messengers and networks show beside a link, drawn here with the page's title;
templates/layout.html says all this. The addresses follow from the
repository's, which `_config.yml` names.
"""

import html
import re
import textwrap
from pathlib import Path
from urllib.parse import urlsplit

import matplotlib
from docutils import nodes
from PIL import Image, ImageDraw, ImageFont

# What networks ask for, in pixels.
WIDTH, HEIGHT = 1200, 630
MARGIN = 80

# The colours of the logo.
INK, GREY, BLUE = "#1b1f24", "#57606a", "#1f5fa8"

# images/logo-light.svg on white, 180 pixels wide: also the icon of the book
# on the screen of a telephone, and in browsers that read no svg icons.
LOGO = Path(__file__).parent / "static" / "touch-icon.png"
FONTS = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
MOTTO = "A weighted average whose weights are computed"


def site_address(repository):
    """Where GitHub publishes the pages of a repository.

    >>> site_address("https://github.com/OWNER/averages-to-attention")
    'https://owner.github.io/averages-to-attention/'
    """
    owner, name = urlsplit(repository).path.strip("/").split("/")
    return f"https://{owner.lower()}.github.io/{name}/"


def find_address(app, config):
    """Let the pages know where they will lie; Sphinx links them to it."""
    repository = config.html_theme_options["repository_url"]
    config.html_baseurl = config.html_baseurl or site_address(repository)


# The card


def wrap(text, font, width):
    """A text in lines that are no wider than so many pixels."""
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if font.getlength(longer) > width and lines[-1]:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines


def draw_card(title, book):
    """The card of a page: its title, large, under the name of the book."""
    card = Image.new("RGB", (WIDTH, HEIGHT), "white")
    pen = ImageDraw.Draw(card)
    small = ImageFont.truetype(FONTS / "DejaVuSans.ttf", 34)
    with Image.open(LOGO) as logo:
        card.paste(logo.resize((136, 136)), (MARGIN - 12, 50))
    pen.text((MARGIN + 140, 122), book, GREY, small, anchor="lm")
    for size in (76, 68, 60, 52):  # the largest that leaves three lines
        bold = ImageFont.truetype(FONTS / "DejaVuSans-Bold.ttf", size)
        lines = wrap(title, bold, WIDTH - 2 * MARGIN)
        if len(lines) <= 3:
            break
    for row, line in enumerate(lines):
        pen.text((MARGIN, 236 + 1.25 * size * row), line, INK, bold)
    pen.text((MARGIN, HEIGHT - 84), MOTTO, GREY, small, anchor="lm")
    pen.rectangle((0, HEIGHT - 20, WIDTH, HEIGHT), BLUE)
    return card


# The head of a page


def first_words(doctree):
    """What a page begins with, without its badges, in at most 160 letters."""
    first = next(doctree.findall(nodes.section), doctree)
    words = " ".join(
        part.astext()
        for part in first.children
        if isinstance(part, nodes.paragraph)
        and not any(part.findall(nodes.image))  # a badge
        and not any(part.findall(nodes.math))
    )
    return textwrap.shorten(words, 160, placeholder=" …")


def describe(app, pagename, templatename, context, doctree):
    """Give a page's template its description and its card."""
    site = app.config.html_baseurl
    context["base"] = urlsplit(site).path  # for 404, sent from any depth
    if pagename == app.config.root_doc:
        context["pageurl"] = site
    if pagename == "404" or site.startswith("https://owner.github.io/"):
        context["pageurl"] = None  # it has none, or the book has none yet
    if doctree is None:
        return
    title = html.unescape(re.sub("<.*?>", "", context["title"]))
    file = Path(app.outdir, "_images", "cards", f"{pagename}.png")
    file.parent.mkdir(parents=True, exist_ok=True)
    draw_card(title, app.config.html_title).save(file)
    context.update(
        plain_title=title,
        description=first_words(doctree),
        card=f"{site}_images/cards/{file.name}",
    )


def setup(app):
    app.connect("config-inited", find_address)
    app.connect("html-page-context", describe)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
