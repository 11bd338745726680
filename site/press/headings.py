"""The addresses of sections: those of Jupyter, which the pages know as well.

JupyterLab knows a heading by its words, with hyphens between them, and
`[text](#Where-people-go-wrong)` leads there. MyST makes other
addresses, in small letters and without signs. Notebooks use Jupyter's, so that
their links work where they are run. Here the pages learn these addresses
beside MyST's. The addresses of the built pages do not change.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

#: What an address has as it is, besides letters and digits. JupyterLab
#: compares an address with the words of a heading and decodes nothing, so a
#: round bracket has to be there as well; Markdown allows it in an address if
#: it is closed again.
_AS_THEY_ARE = "!$&'()*+,-./:;=?@_~"

#: The address of a link in Markdown as a pattern, with the brackets around it:
#: it may have brackets of its own, such as those around a side road's minutes.
ADDRESS = r"\((?:[^()]|\([^()]*\))*\)"


def jupyter_address(heading: str) -> str:
    """The address by which Jupyter knows a heading, for a link of Markdown.

    Args:
        heading: the heading in Markdown, without its signs `#`.

    Raises:
        ValueError: the heading has a formula. Jupyter has typeset it by the
            time that it makes the address, or not; one cannot know. Or the
            heading has a bracket that is not closed, and would end the link.

    >>> jupyter_address("Side road: torch's own `Linear` (2 minutes)")
    "Side-road:-torch's-own-Linear-(2-minutes)"
    """
    if "$" in heading:
        raise ValueError(
            "Jupyter gives a heading with a formula no certain address; "
            f"expected words alone; got {heading!r}"
        )
    words = re.sub(r"[`*]", "", heading).strip()
    address = quote(words.replace(" ", "-"), safe=_AS_THEY_ARE)
    if not re.fullmatch(ADDRESS, f"({address})"):
        raise ValueError(
            "a link of Markdown can have brackets in its address only if each "
            f"is closed, and none is inside another; got {heading!r}"
        )
    return address


class AddJupyterAddresses(SphinxTransform):
    """Let links of Markdown find a section by Jupyter's address, too."""

    # Before MyST looks for the targets, and before straight quotation marks
    # are made curved ones.
    default_priority = 100

    def apply(self, **kwargs: Any) -> None:
        """Add the addresses of this document to those that MyST knows."""
        known = getattr(self.document, "myst_slugs", {})
        for section in self.document.findall(nodes.section):
            if "slug" in section:
                words = section[0].astext()
                address = words.replace(" ", "-")
                known.setdefault(
                    address, (section.line, section["ids"][0], words)
                )


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_transform(AddJupyterAddresses)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
