"""Where everything lies: the one answer for the press and the tools."""

from __future__ import annotations

from pathlib import Path

#: The folder of the repository.
ROOT = Path(__file__).resolve().parents[2]

#: The notebooks and, beside them, the library.
CHAPTERS = ROOT / "chapters"

#: What the press needs besides Python: templates, style sheets, scripts.
SITE = ROOT / "site"

#: The built pages; `make book` writes them.
HTML = ROOT / "_build" / "html"
