"""The version of the book: one number in all places that name it."""

import re

import yaml
from notebooks import ROOT

from attnbook import __version__
from press.changes import CHANGELOG, editions


def test_the_book_has_one_version():
    """Package, citation, changelog, errata and the reference that pages name.

    The tag that a release makes is that reference, see CONTRIBUTING.md.
    """
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    config = yaml.safe_load((ROOT / "_config.yml").read_text("utf-8"))
    errata = (ROOT / "chapters" / "errata.md").read_text("utf-8")
    newest = editions(CHANGELOG.read_text("utf-8"))[0]
    (edition,) = re.findall(r"known in edition ([\d.]+)\.\s", errata)
    (changed,) = re.findall(r"\(([\d.]+)\)", newest.name)
    assert re.fullmatch(r"\d+\.\d+\.\d+", __version__)
    named = {
        "CITATION.cff": citation["version"],
        "CHANGELOG.md": changed,
        "errata.md": edition,
        "_config.yml": config["repository"]["branch"].removeprefix("v"),
    }
    assert named == dict.fromkeys(named, __version__)
