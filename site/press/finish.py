"""What the built pages get once Sphinx has written them all.

Each page is read once, changed where that takes knowledge of other files, and
written once: the names of its pictures, its style sheet. Beside the pages
come their plain texts, a feed of changes and, for a site with an address, a
sitemap. What a page's head and foot say of all this is in the templates.
"""

from __future__ import annotations

import shutil
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

from press import changes, pictures, styles
from press.cards import public_address
from press.contents import Contents
from press.markup import Page
from press.plain import twin, write_twins
from press.theme_script import mend_theme_script

#: What a page may load: files of the site, and its own lines. KaTeX's boxes
#: have inline styles; the figures that move, and the theme, have inline
#: scripts. "file:" is there because 'self' may mean nothing for a page that is
#: read from a disk (w3c/webappsec-csp #459); a page that comes from a host may
#: load nothing from a disk anyway.
POLICY = "; ".join(
    (
        "default-src 'self' file:",
        "script-src 'self' file: 'unsafe-inline'",
        "style-src 'self' file: 'unsafe-inline'",
        "img-src 'self' file: data:",
        "font-src 'self' file: data:",
        "object-src 'none'",
        "base-uri 'self' file:",
        "form-action 'self' file:",
    )
)

FEED = "feed.xml"

#: The book as one file, and what the links to it say.
FILES = {
    "averages-to-attention.pdf": "PDF",
    "averages-to-attention.epub": "EPUB",
}


# The formats of the book


def write_feed(site: Path, title: str, author: str, address: str) -> None:
    """Write the feed of the changelog's editions.

    Raises:
        ValueError: the changelog's editions are not as they should be.
    """
    found = changes.editions(changes.CHANGELOG.read_text("utf-8"))
    feed = changes.feed(title, author, found, address)
    (site / FEED).write_text(feed, "utf-8")


def write_sitemap(site: Path, contents: Contents, address: str) -> None:
    """Write sitemap.xml and robots.txt, if the site has an address.

    A robots.txt is read at the root of a host alone. Where the book lies
    deeper, the sitemap is given to a search engine by hand.
    """
    if not address:
        return
    root = contents.documents[0]
    lines = ""
    for page in sorted(contents.documents):
        file = "" if page == root else f"{page}.html"
        lines += f"<url><loc>{address}{file}</loc></url>\n"
    (site / "sitemap.xml").write_text(
        '<?xml version="1.0" encoding="utf-8"?>\n'
        '<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">\n'
        f"{lines}</urlset>\n",
        "utf-8",
    )
    robots = f"User-agent: *\nAllow: /\n\nSitemap: {address}sitemap.xml\n"
    (site / "robots.txt").write_text(robots, "utf-8")


def put_on_site(book: Path, site: Path, contents: Contents) -> None:
    """Copy an EPUB or a PDF of the book to the site, and link it.

    Such a file is made of the built pages, so it comes after them. The pages
    are read and written once more to get the link at their foot.
    """
    shutil.copyfile(book, site / book.name)
    for path in contents.files(site):
        page = Page.read(path)
        offer(page, book.name)
        page.write()


def offer(page: Page, file: str) -> None:
    """Let the foot of a page offer the book as one file.

    The links of templates/extra-footer.html come in the order: the page's
    plain text, the PDF, the EPUB, the feed.
    """
    order = [*FILES, FEED]
    later = order[order.index(file) :]
    foot = max(
        p.start
        for p in page.tags("p")
        if p.attributes.get("class") == "formats"
    )
    for link in page.tags("a"):
        target = link.attributes.get("href")
        if link.start < foot or target not in later:
            continue
        if target != file:
            text = f'<a href="{file}">the book as {FILES[file]}</a>, '
            page.markup.replace(link.start, link.start, text)
        return


# The skip link

#: The name of the place where a page's text begins.
TEXT = "page-text"


def skip_to_text(page: Page) -> None:
    """Let the skip link lead to the text, and give the text the focus.

    The theme's link leads to an element that begins with the page's buttons,
    and gives the focus to nothing: the next stops of the keyboard would be
    the buttons, and not the text. The search page, which has no text, is as
    the theme makes it.
    """
    for article in page.tags("article")[:1]:
        text = article.having({"id": TEXT, "tabindex": "-1"})
        page.markup.replace(article.start, article.end, text)
        for link in page.tags("a"):
            if link.attributes.get("href") == "#main-content":
                text = link.text.replace("#main-content", f"#{TEXT}")
                page.markup.replace(link.start, link.end, text)


# While the book is built


def read_page(
    path: Path, *, site: Path, contents: Contents, title: str
) -> tuple[Page, str]:
    """Read a page and settle what takes no knowledge of the other pages.

    Args:
        path: of the page, whose pictures are as the site will have them.
        site: the folder of the built pages.
        contents: the pages of the book.
        title: of the book.

    Returns:
        The page, and its plain text, which is empty for a page that is made
        of no document.
    """
    page = Page.read(path)
    pictures.settle(page, site)
    skip_to_text(page)
    if path.stem not in contents.documents:
        return page, ""
    known = set(contents.documents)
    return page, twin(path.stem, page.markup, known, title)


def tell_templates(
    app: Sphinx, pagename: str, templatename: str, context: Any, doctree: Any
) -> None:
    """Tell a page's template the policy, and where the other formats are."""
    context["policy"] = POLICY
    context["feed"] = FEED
    context["plain_text"] = "" if doctree is None else f"{pagename}.txt"


def finish(app: Sphinx, exception: Exception | None) -> None:
    """Finish the site, once Sphinx has written its pages.

    Pictures become smaller, the style sheets become one, and the plain texts,
    the feed and the sitemap are written. After a build that failed, or was of
    another format than HTML, nothing is done.
    """
    if exception is not None or app.builder.name != "html":
        return
    site = Path(app.outdir)
    contents = Contents.of(app.config.external_site_map)
    title = app.config.html_title
    address = public_address(app.config)
    mend_theme_script(site)
    pictures.pack(site)
    read = partial(read_page, site=site, contents=contents, title=title)
    with ProcessPoolExecutor() as processes:  # as many as there are cores
        found = [*processes.map(read, contents.files(site))]
    pages = [page for page, _ in found]
    styles.lighten(pages, site)
    for page in pages:
        page.write()
    texts = {page.path.stem: text for page, text in found}
    write_twins(texts, site, title, contents)
    write_feed(site, title, app.config.author, address)
    write_sitemap(site, contents, address)


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("html-page-context", tell_templates)
    # After all others, at the usual priority, have copied their files.
    app.connect("build-finished", finish, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
