"""Places where the model answers: what stands there until it does."""

import re
from unittest import mock

import pytest
from notebooks import ROOT

from attnbook.teach.page import live

SENTENCE = "Here it says <where> omar goes."


def shown(*panels, **options):
    with mock.patch.object(live, "display") as display:
        live.answers_here(*panels, sentence=SENTENCE, **options)
    return display.call_args.args[0]


def test_a_place_has_its_panels_its_start_and_a_sentence():
    found = shown("next", "heads", start="bank")
    assert found["text/plain"] == SENTENCE
    assert 'data-town="next heads" data-try="bank"' in found["text/html"]
    assert "Here it says &lt;where&gt; omar goes." in found["text/html"]


def test_the_script_knows_all_starts():
    script = (ROOT / "site" / "town" / "view.js").read_text("utf-8")
    tries = script[script.index("TRIES") :]
    for name in live.TRIES:
        assert re.search(rf"\b{name}\b", tries), name


@pytest.mark.parametrize(
    "panels, options, message",
    [
        ((), {}, "shows panels; expected one or more of next.*got none"),
        (("next", "past"), {}, "shows panels; .*; got past"),
        (("next",), {"start": "none"}, "cannot begin with this; .*got 'none'"),
    ],
)
def test_an_unknown_panel_or_start_is_refused(panels, options, message):
    with pytest.raises(ValueError, match=message):
        shown(*panels, **options)
