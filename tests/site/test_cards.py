"""What the pages say of themselves to search engines and previews."""

from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest
from bs4 import BeautifulSoup
from PIL import Image

from press import cards
from press.contents import contents
from press.places import HTML
from press.settings import is_placeholder, settings

NAMES = contents().documents


def head(name):
    html = (HTML / f"{name}.html").read_text("utf-8")
    return BeautifulSoup(html[: html.index("</head>")], "html.parser")


def said(name):
    """What the meta elements of a page say, each once."""
    found = {}
    for meta in head(name).select("meta[property], meta[name]"):
        key = meta.get("property") or meta["name"]
        if key.startswith(("og:", "twitter:", "description")):
            assert key not in found, f"{name} says {key} twice"
            found[key] = meta["content"]
    return found


def test_the_address_follows_from_the_repository():
    url = "https://github.com/Some-One/a-book"
    assert cards.site_address(url) == "https://some-one.github.io/a-book/"


@pytest.mark.parametrize(
    "owner, page, address",
    [
        ("OWNER", "index", None),
        ("OWNER", "a", None),
        ("me", "index", "https://me.github.io/a-book/"),
        ("me", "a", "https://me.github.io/a-book/a.html"),
        ("me", "404", None),
    ],
)
def test_a_page_names_its_address_once_there_is_one(owner, page, address):
    site = cards.site_address(f"https://github.com/{owner}/a-book")
    config = SimpleNamespace(html_baseurl=site, root_doc="index")
    context = {"pageurl": f"{site}{page}.html"}
    cards.describe(SimpleNamespace(config=config), page, "", context, None)
    assert context["pageurl"] == address
    assert context["base"] == "/a-book/"


@pytest.mark.parametrize("name", NAMES)
def test_a_page_names_its_address_and_its_card(name):
    site = cards.site_address(settings().url)
    tags = said(name)
    own = site if name == "index" else f"{site}{name}.html"
    canonical = [c["href"] for c in head(name).select("link[rel=canonical]")]
    there = [] if is_placeholder(settings().url) else [own]
    assert canonical == there == [tags[k] for k in tags if k == "og:url"]
    pictures = [tags[k] for k in tags if k == "og:image"]
    card = f"_images/cards/{name}.png"
    assert pictures == [site + card for _ in there]  # no other's host
    assert tags["og:site_name"] == "From Averages to Attention"
    assert tags["og:type"] == ("website" if name == "index" else "article")
    assert tags["og:description"] == tags["description"]
    assert 40 <= len(tags["description"]) <= 160
    assert tags["twitter:card"] == "summary_large_image"
    with Image.open(HTML / card) as picture:
        assert (picture.format, picture.size) == ("PNG", (1200, 630))


def test_each_title_fits_on_its_card():
    """Nothing is drawn in the margins, or between title and motto."""
    for name in NAMES:
        card = cards.draw_card(said(name)["og:title"])
        for box in ((1200 - 80, 0, 1200, 600), (0, 516, 1200, 526)):
            colours = [c for _, c in card.crop(box).getcolors()]
            assert colours == [(255, 255, 255)], name


def test_the_page_for_lost_addresses_is_in_no_search_engine():
    lost = head("404")
    assert lost.select_one('meta[name=robots][content="noindex"]')
    assert not lost.select("link[rel=canonical]")
    name = urlsplit(settings().url).path.rpartition("/")[2]
    assert lost.base["href"] == f"/{name}/"
