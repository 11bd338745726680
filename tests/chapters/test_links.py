"""Links of notebooks have the addresses by which Jupyter finds sections."""

import re
from urllib.parse import unquote

from book import by_notebook
from bs4 import BeautifulSoup
from markdown_it import MarkdownIt
from notebooks import CHAPTERS

from press.headings import jupyter_address
from press.sections import markdown

#: A link to a place on a page of the book: in Markdown, or in HTML.
LINK = re.compile(r'(?:\]\(|href=")([\w.]*)#((?:[^()\s"]|\([^()\s"]*\))+)')
HEADING = re.compile(r"(?m)^#{1,6} (.+)$")
#: Places that no heading has: works by their keys, mistakes by their names.
NO_SECTIONS = r"bibliography\.md#\w+|mistakes\.ipynb#\w+"


def text_of(path):
    """The Markdown of a page, without its blocks of code."""
    return re.sub(r"(?ms)^```.*?^```$", "", markdown(path))


@by_notebook()
def test_a_link_leads_to_a_section_by_its_address_in_jupyter(path):
    for page, address in LINK.findall(text_of(path)):
        if re.fullmatch(NO_SECTIONS, f"{page}#{address}"):
            continue
        target = text_of(CHAPTERS / (page or path.name))
        known = {jupyter_address(h) for h in HEADING.findall(target)}
        assert address in known, (
            f"{path.name} links to {page}#{address}; expected the address by "
            "which Jupyter knows a section (press.headings.jupyter_address)"
        )


@by_notebook()
def test_the_address_is_what_jupyter_makes_of_the_heading_that_is_shown(path):
    """It takes the words of the element, and a hyphen for each space."""
    for heading in HEADING.findall(text_of(path)):
        html = MarkdownIt("commonmark").render(f"# {heading}")
        words = BeautifulSoup(html, "html.parser").h1.get_text()
        assert unquote(jupyter_address(heading)) == words.replace(" ", "-")
        assert not re.search(r"[\[\]\s]", jupyter_address(heading))
