"""Where the pages' links lead, as far as a browser must be asked.

That each names a file and a place in it, tests/site/test_site.py knows already.
"""

from __future__ import annotations

from repository import address as repository

CHAPTER = "05_masking"

URL, BRANCH = repository()
OWNER_AND_NAME = URL.removeprefix("https://github.com/")
COLAB = (
    "https://colab.research.google.com/github/"
    f"{OWNER_AND_NAME}/blob/{BRANCH}/chapters/{CHAPTER}.ipynb"
)
BINDER = (
    f"https://mybinder.org/v2/gh/{OWNER_AND_NAME}/{BRANCH}"
    f"?urlpath=lab/tree/chapters/{CHAPTER}.ipynb"
)


def test_the_book_can_be_gone_through(visit, address):
    page = visit(CHAPTER)
    links = page.locator(
        ".bd-sidebar-primary a, .prev-next-area a, .navbar-brand"
    ).evaluate_all("links => [...new Set(links.map((link) => link.href))]")
    assert len(links) > 15
    answers = page.evaluate(
        "links => Promise.all(links.map((link) =>"
        " fetch(link).then(({ok, status}) => ok ? '' : `${status} ${link}`)))",
        links,
    )
    assert "".join(answers) == ""


def test_a_notebook_can_be_opened_elsewhere(visit):
    page = visit(CHAPTER)
    badge = page.locator(
        "article a", has=page.get_by_alt_text("Open in Colab")
    )
    assert badge.get_attribute("href") == COLAB
    assert badge.locator("img").evaluate(
        "image => image.naturalWidth > 0 && image.checkVisibility()"
        " && image.currentSrc.startsWith(location.origin)"
    )
    page.get_by_role("button", name="Launch interactive content").click()
    for name, url in {"Colab": COLAB, "Binder": BINDER}.items():
        link = page.locator(".dropdown-launch-buttons a", has_text=name)
        assert link.is_visible() and link.get_attribute("href") == url
