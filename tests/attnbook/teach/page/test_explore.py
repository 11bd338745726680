"""Interactive figures: what is written into a page, and what is refused."""

import json
import re

import numpy as np
import pytest
import torch

from attnbook.teach.page import explore as room
from attnbook.teach.page.explore import explore

GOOD = {
    "title": "One query, and its scale",
    "sentence": "Six bars show the weights, and a slider sets the scale.",
    "start": {"octave": 0},
    "checks": [({"octave": 0}, {"heard": 2.0})],
}


@pytest.fixture
def shown(monkeypatch):
    found = []
    monkeypatch.setattr(
        room, "display", lambda data, raw: found.append(data["text/html"])
    )
    return found


def test_data_are_written_as_json(shown):
    explore(
        "scale",
        **GOOD,
        names=["<b>", "</script>"],
        flags=[True, None],
        scores=torch.tensor([0.1, -2.0], dtype=torch.float64),
        many=np.array([[1.23456789, 1e-9], [123456.789, -0.0]]),
    )
    tag = r'<script type="application/json">(.*?)</script>'
    assert json.loads(re.search(tag, shown[0])[1]) == {
        "title": GOOD["title"],
        "start": {"octave": 0},
        "checks": [{"state": {"octave": 0}, "values": {"heard": 2}}],
        "names": ["<b>", "</script>"],
        "flags": [True, None],
        "scores": [0.1, -2],
        "many": [[1.23457, 0], [123457, 0]],
    }


@pytest.mark.parametrize(
    "change, words",
    [
        ({"kind": "pie"}, "unknown kind .* expected one of .*scale.* 'pie'"),
        ({"sentence": "Bars."}, "40 letters or more; got 'Bars.'"),
        ({"checks": []}, "without checks .* numbers or none"),
        ({"checks": [({}, {})]}, "without checks .* without numbers"),
        ({"scores": torch.tensor([torch.nan])}, "finite; expected no nan"),
    ],
)
def test_what_is_amiss_is_refused(shown, change, words):
    with pytest.raises(ValueError, match=words):
        explore(**{"kind": "scale", **GOOD, **change})
    assert not shown
