"""Five pages as they look, kept for people in _build/screenshots/."""

import pytest
from PIL import Image
from screenshots import PAGES, take

from press.places import HTML as SITE


@pytest.mark.parametrize("shot", PAGES, ids=lambda shot: shot.name)
def test_a_picture_is_taken(chromium, address, shot):
    path = take(chromium, address, shot, SITE.parent / "screenshots")
    with Image.open(path) as picture:
        assert picture.size == shot.size
        assert len(picture.convert("L").getcolors()) > 20, "all but empty"
