"""What `_config.yml` says of the book: its title, its authors, its address."""

from __future__ import annotations

from typing import NamedTuple

import yaml

from press.places import ROOT

#: Stands in `_config.yml` until the book has a public address. Somebody may
#: have this name, so nothing is ever fetched from there.
PLACEHOLDER = "https://github.com/OWNER/"


class Settings(NamedTuple):
    """What a title page, a feed or a library's catalogue asks for.

    `url` is the repository's address, `branch` the release in it to which
    the pages belong, and `licence` the line at the foot of each page.
    """

    title: str
    author: str
    url: str
    branch: str
    licence: str


def settings() -> Settings:
    """The settings of this book."""
    config = yaml.safe_load((ROOT / "_config.yml").read_text("utf-8"))
    return Settings(
        title=config["title"],
        author=config["author"],
        url=config["repository"]["url"],
        branch=config["repository"]["branch"],
        licence=config["html"]["extra_footer"].strip(),
    )


def is_placeholder(url: str) -> bool:
    """Whether a repository's address is not yet a real one.

    >>> is_placeholder("https://github.com/owner/averages-to-attention")
    True
    """
    return url.lower().startswith(PLACEHOLDER.lower())
