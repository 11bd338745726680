"""The study of a habit: its reward is what the page says, no question is both
learned and asked, and what is stored has the form that chapter 23 shows. What
was measured is not asserted."""

import importlib
import json
import sys

import pytest
from models import random_model
from notebooks import CHAPTERS, ROOT
from real_models import needs_smollm2

from attnbook.gpt import GPTConfig

sys.path.append(str(ROOT / "benchmarks"))
study = importlib.import_module("habit")

STORED = json.loads(
    (CHAPTERS / "attnbook" / "data" / "habit.json").read_text("utf-8")
)


def test_the_reward_is_for_answers_that_end_in_time():
    end = 2
    assert study.rewarded([5] * 15 + [end], end) == 1
    assert study.rewarded([end], end) == 1  # also if nothing is said
    assert study.rewarded([5] * 16 + [end], end) == 0
    assert study.rewarded([5] * 16, end) == 0


def test_no_question_is_learned_and_asked():
    learned = {question for question, _ in study.EXAMPLES}
    asked = {question for question, _ in study.ASKED}
    assert len(learned) == 48 and len(asked) == 32
    assert not learned & asked
    for question, wanted in study.ASKED:
        assert wanted and all(word == word.lower() for word in wanted), (
            question
        )


def test_what_is_stored_has_the_form_that_the_page_shows():
    settings = STORED["settings"]
    assert settings["brief"] == study.BRIEF
    assert settings["beta"] == study.BETA
    assert settings["steps"] == study.STEPS
    assert list(STORED["runs"]["before"]) == ["0"]
    for way, steps in study.STEPS.items():
        runs = STORED["runs"][way]
        assert runs
        for run in runs.values():
            assert len(run["learning"]) == steps
            assert len(run["answers"]) == len(study.ASKED)
            assert list(run["texts"]) == ["ferry", "soup"]
            # Of 30 blocks the upper ten: queries, keys with values, output.
            rank = study.RANK
            d = 576
            assert run["trained"] == 10 * rank * (2 * d + d + 384 + 2 * d)


@needs_smollm2
@pytest.mark.slow
def test_the_smallest_form_runs_and_goes_on_where_it_stopped(
    monkeypatch, tmp_path
):
    kept = []
    (tmp_path / "attnbook" / "data").mkdir(parents=True)
    file = tmp_path / "attnbook" / "data" / "habit.json"

    def store(name, results):
        kept.append(name)
        file.write_text(json.dumps(results))

    # As many tokens as the tokenizer has, and little else.
    config = GPTConfig(
        vocab_size=49_152, context=64, d_model=8, n_heads=2, n_layers=2
    )
    monkeypatch.setattr(study, "load", lambda _: random_model(config).float())
    monkeypatch.setattr(study, "UPPER", 1)
    monkeypatch.setattr(study, "store", store)
    monkeypatch.setattr(study, "CHAPTERS", tmp_path)
    monkeypatch.setattr(study, "STEPS", {"braked": 1, "example": 1})
    monkeypatch.setattr(study, "ASKED", study.ASKED[:1])
    monkeypatch.setattr(study, "BRIEF", 3)
    monkeypatch.setattr(study, "LONG", 3)
    monkeypatch.setattr(study, "RECIPE", "Heat the oil.")
    monkeypatch.setattr(study, "TEXT", "The ferry crosses.")
    study.main(1, ["braked", "example"])
    found = json.loads(file.read_text())["runs"]
    assert len(kept) == 3
    assert found["before"]["0"]["moved"] == 0
    assert len(found["example"]["0"]["learning"]) == 1
    assert found["example"]["0"]["moved"] != 0
    study.main(1, ["braked", "example"])
    assert len(kept) == 3  # nothing was computed again
