"""Jupyter's addresses of sections, and the pages that know them."""

import io
import re

import pytest
from bs4 import BeautifulSoup
from sphinx.application import Sphinx
from sphinx.util.docutils import docutils_namespace, patch_docutils

from press.headings import ADDRESS, jupyter_address

#: Headings, and the addresses that the pages gave them before.
HEADINGS = {
    "A side road: torch's `Linear` (2 minutes)": (
        "a-side-road-torch-s-linear-2-minutes"
    ),
    "Queries, keys and *values*": "queries-keys-and-values",
    "True: may look, or: is hidden?": "true-may-look-or-is-hidden",
    "What −1e9 does": "what-1e9-does",
}


def build(folder, text, extensions=("myst_parser", "press.headings")):
    """Build a book of two pages that have the same text.

    Returns:
        The page, and what Sphinx warns of.
    """
    toc = "\n\n```{toctree}\ntwo\n```\n"
    (folder / "index.md").write_text(f"# One{toc}{text}", "utf-8")
    (folder / "two.md").write_text(f"# Two\n\n{text}", "utf-8")
    warnings = io.StringIO()
    settings = {
        "extensions": list(extensions),
        "html_theme": "basic",
        "myst_heading_anchors": 3,
    }
    places = (folder, None, folder / "o", folder / "t")
    with patch_docutils(folder), docutils_namespace():
        Sphinx(
            *places, "html", settings, status=None, warning=warnings
        ).build()
    page = (folder / "o" / "index.html").read_text("utf-8")
    warned = re.sub("\x1b.*?m", "", warnings.getvalue())
    return BeautifulSoup(page, "html.parser"), warned


def text_with_links():
    """All headings, a link to each, and a link to each on the other page."""
    text = ""
    for heading in HEADINGS:
        address = jupyter_address(heading)
        text += f"## {heading}\n\n"
        text += f"[here](#{address}), [there](two.md#{address})\n\n"
    return text


def test_a_link_finds_a_section_by_jupyters_address(tmp_path):
    page, warned = build(tmp_path, text_with_links())
    assert warned == ""
    for words, name in [("here", ""), ("there", "two.html")]:
        links = [a["href"] for a in page.find_all("a") if a.string == words]
        assert links == [f"{name}#{old}" for old in HEADINGS.values()]


def test_the_addresses_of_the_pages_stay(tmp_path):
    page, _ = build(tmp_path, text_with_links())
    sections = [s["id"] for s in page.find_all("section")]
    assert sections == ["one", *HEADINGS.values()]


def test_mysts_own_addresses_are_found_as_before(tmp_path):
    text = "## Queries, keys\n\n[here](#queries-keys)\n"
    page, warned = build(tmp_path, text)
    assert warned == ""
    assert page.find("a", string="here")["href"] == "#queries-keys"


def test_a_link_to_no_section_is_warned_of(tmp_path):
    _, warned = build(tmp_path, "## Padding\n\n[here](#Paddings)\n")
    assert "#Paddings" in warned or "'Paddings'" in warned


def test_without_the_extension_the_addresses_are_not_known(tmp_path):
    _, warned = build(tmp_path, text_with_links(), ["myst_parser"])
    assert "myst.xref_missing" in warned


def test_an_address_keeps_the_words_as_jupyter_compares_them():
    address = jupyter_address("Side road: torch's own `Linear` (2 minutes)")
    assert address == "Side-road:-torch's-own-Linear-(2-minutes)"


def test_a_formula_in_a_heading_is_refused():
    with pytest.raises(ValueError, match="expected words alone; got 'Why"):
        jupyter_address(r"Why $\sqrt{d}$")


@pytest.mark.parametrize("heading", ["An end) first", "(open", "((two))"])
def test_a_bracket_that_would_end_the_link_is_refused(heading):
    with pytest.raises(ValueError, match="only if each is closed"):
        jupyter_address(heading)


def test_an_address_ends_with_its_last_bracket():
    text = "[a](#Side-road:-b-(2-minutes)), ([c](d.md)) and [e](f 'g')"
    found = re.findall(rf"\]({ADDRESS})", text)
    assert found == ["(#Side-road:-b-(2-minutes))", "(d.md)", "(f 'g')"]
