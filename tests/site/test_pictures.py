"""The pages' pictures: packed, of a known size, fetched when they are near."""

import pytest
from PIL import Image
from styled_site import soup, write_site

from press import pictures
from press.markup import Page


def test_pictures_are_packed_sized_and_wait(tmp_path):
    site = write_site(tmp_path / "site")
    with Image.open(site / "_images/a.png") as before:
        pixels = before.tobytes()
    pictures.pack(site)
    page = Page.read(site / "index.html")
    pictures.settle(page, site)
    page.write()
    first, second, drawn = soup(site).find_all("img")
    assert first["src"] == second["src"] == "_images/a.webp"
    with Image.open(site / "_images/a.webp") as after:
        assert after.convert("RGBA").tobytes() == pixels
    assert not (site / "_images/a.png").exists()
    assert (second["width"], second["height"]) == ("40", "20")
    assert (drawn["width"], drawn["height"]) == ("30", "10")
    assert first.get("loading") is None  # in the first view
    assert second["loading"] == drawn["loading"] == "lazy"


@pytest.mark.parametrize(
    "svg, size",
    [
        ('<svg width="30" height="10.4"/>', (30, 10)),
        ('<svg width="30px" height="10px"/>', (30, 10)),
        ('<?xml version="1.0"?><svg viewBox="5 5 30 10"><g/></svg>', (30, 10)),
    ],
)
def test_a_drawing_says_its_size_or_its_view_box(tmp_path, svg, size):
    (tmp_path / "a.svg").write_text(svg, "utf-8")
    assert pictures.size_of(tmp_path / "a.svg") == size


def test_a_drawing_without_a_size_is_named(tmp_path):
    (tmp_path / "a.svg").write_text("<svg></svg>", "utf-8")
    with pytest.raises(ValueError, match="a.svg has no size"):
        pictures.size_of(tmp_path / "a.svg")
