"""The page that a host shows for an address at which the book has none.

GitHub Pages sends 404.html from any depth, `/NAME/a/b/c` too, where relative
addresses lead astray. A base puts them right: the book's own, or, on a host
of another name, such as a reader's own machine, the root.
"""

import json
from urllib.parse import urlsplit

TITLE = "There is no such page"

BODY = """
<h1>There is no such page</h1>
<p>The address may be mistyped, or it may be of a page that has moved since it
was written down.</p>
<p>The <a href="index.html">first page</a> names all chapters. Or look for
what you meant:</p>
<form class="not-found" role="search" action="search.html">
  <label for="not-found-words">Search this book</label>
  <input id="not-found-words" type="search" name="q" required />
  <button type="submit">Search</button>
</form>
"""

# The base holds for links to places on the page itself too, which would then
# leave it: these are given the whole address.
HEAD = """
<base href="{base}" />
<meta name="description" content="There is no page at this address." />
<meta name="robots" content="noindex" />
<script>
  if (!location.pathname.startsWith({quoted}))
    document.querySelector("base").setAttribute("href", "/");
  addEventListener("DOMContentLoaded", () => {{
    for (const link of document.querySelectorAll('a[href^="#"]'))
      link.href = location.pathname + link.hash;
  }});
</script>
"""


def add_page(app):
    """Give Sphinx the page: its name, what it shows and its template."""
    base = urlsplit(app.config.html_baseurl).path
    context = {
        "title": TITLE,
        "body": BODY,
        "metatags": HEAD.format(base=base, quoted=json.dumps(base)),
        "pageurl": None,  # it has no address of its own
    }
    return [("404", context, "page.html")]


def setup(app):
    app.connect("html-collect-pages", add_page)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
