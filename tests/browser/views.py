"""What the browser tests look at, and how wide they look."""

from playwright.sync_api import ViewportSize

from notebooks import ROOT

SITE = ROOT / "_build" / "html"

WIDE: ViewportSize = {"width": 1280, "height": 900}
PHONE: ViewportSize = {"width": 360, "height": 740}
