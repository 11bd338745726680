"""What the built pages get besides what Sphinx writes.

Each page gets a policy, by which no other host's code runs in it, and the
links to its forms: the plain text, the feed, and the book as one file where
that has been made. A site with an address gets a sitemap.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from press import changes
from press.contents import Contents
from press.plain import write_twins
from press.settings import Settings

#: What a page may load: files beside it, and its own lines. KaTeX's boxes are
#: inline styles; the figures that move, and the theme, are inline scripts. A
#: page that is read from a disk may have no 'self' (w3c/webappsec-csp #459);
#: one that comes from a host may load nothing from a disk anyway.
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

#: The book as one file, and what the links to it say.
FILES = {
    "averages-to-attention.pdf": "PDF",
    "averages-to-attention.epub": "EPUB",
}


def policed(html: str) -> str:
    """A page with the policy before all that it governs."""
    policy = f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
    return html.replace("<head>", f"<head>{policy}", 1)


def with_links(html: str, page: str, text: bool) -> str:
    """A page whose head names the feed, and its plain text if it has one."""
    links = (
        '<link rel="alternate" type="application/atom+xml" title="Changes" '
        'href="feed.xml">'
    )
    if text:
        links += (
            '<link rel="alternate" type="text/plain" title="Plain text" '
            f'href="{page}.txt">'
        )
    return html.replace("</head>", f"{links}</head>", 1)


def with_forms(html: str, page: str, files: list[str], text: bool) -> str:
    """A page whose footer offers its other forms; again, after a file was
    made, offers that too."""
    html = re.sub(r'(?s)<p class="forms">.*?</p>', "", html)
    links = [f'<a href="{page}.txt">this page as plain text</a>'] * text
    links += [f'<a href="{f}">the book as {FILES[f]}</a>' for f in files]
    links += ['<a href="feed.xml">a feed of changes</a>']
    before = '<div class="extra_footer">'
    line = f'<p class="forms">Also: {", ".join(links)}</p>'
    return html.replace(before, line + before, 1)


def offer_forms(site: Path, contents: Contents) -> None:
    """Let the pages' footers offer the forms that are there."""
    files = [name for name in FILES if (site / name).is_file()]
    for path in contents.files(site):
        html = path.read_text("utf-8")
        text = path.with_suffix(".txt").is_file()
        path.write_text(with_forms(html, path.stem, files, text), "utf-8")


def put_on_site(book: Path, site: Path, contents: Contents) -> None:
    """Put the book as one file beside the pages, which then offer it."""
    shutil.copyfile(book, site / book.name)
    offer_forms(site, contents)


def address(site: Path) -> str:
    """Where the first page says that it lies; nothing, if it does not."""
    html = (site / "index.html").read_text("utf-8")
    found = re.search(r'<link rel="canonical" href="([^"]+)"', html)
    return found[1] if found else ""


def write_sitemap(site: Path, contents: Contents) -> None:
    """Write sitemap.xml and robots.txt, if the site has an address.

    A robots.txt is read at the root of a host alone. Where the book lies
    deeper, the sitemap is given to a search engine by hand.
    """
    root = address(site)
    if not root:
        return
    urls = [
        root + ("" if page == "index" else f"{page}.html")
        for page in sorted(contents.documents)
    ]
    lines = "".join(f"<url><loc>{url}</loc></url>\n" for url in urls)
    (site / "sitemap.xml").write_text(
        '<?xml version="1.0" encoding="utf-8"?>\n'
        '<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">\n'
        f"{lines}</urlset>\n",
        "utf-8",
    )
    robots = f"User-agent: *\nAllow: /\n\nSitemap: {root}sitemap.xml\n"
    (site / "robots.txt").write_text(robots, "utf-8")


def finish(site: Path, settings: Settings, contents: Contents) -> None:
    """Give a site that Sphinx has built all of this.

    Raises:
        ValueError: the changelog's editions are not as they should be.
    """
    found = changes.editions(changes.CHANGELOG.read_text("utf-8"))
    feed = changes.feed(settings.title, settings.author, found, address(site))
    (site / "feed.xml").write_text(feed, "utf-8")
    write_twins(site, settings.title, contents)
    pages = set(contents.files(site))
    for path in site.glob("*.html"):
        html = policed(path.read_text("utf-8"))
        if path in pages:
            text = path.with_suffix(".txt").is_file()
            html = with_links(html, path.stem, text)
        path.write_text(html, "utf-8")
    offer_forms(site, contents)
    write_sitemap(site, contents)
