"""The book beside other engines: what is asked of a worker, what is said of
an engine that is not there, and that a ratio is that of what was measured.
The engines here are pretended, and no time is asserted."""

import argparse
import json
import sys

import pytest
from notebooks import ROOT

from attnbook.gpt import GPT, GPTConfig

sys.path.append(str(ROOT / "benchmarks"))
import engine_worker  # noqa: E402
import engines  # noqa: E402

#: A process that answers as the worker does, with times that are given.
PRETENDED = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if asked["do"] == "about":
        there = {"quick": "", "absent": "it is not installed", "odd": ""}
        answer = {"contenders": {"tiny": there}, "versions": {"quick": "1.5"}}
    elif asked["contender"] == "odd":
        answer = {"error": "RuntimeError: one text at a time"}
    else:
        answer = {"seconds": asked["threads"] * asked["read"]}
    print(json.dumps(answer), flush=True)
"""
#: The seconds that the pretended writers take, by what they are called.
TAKEN = {"plain": 4.0, "packed": 2.0, "transformers": 6.0}


@pytest.fixture
def worker(tmp_path, monkeypatch):
    """A pretended worker, and no files to be made for it."""
    path = tmp_path / "worker.py"
    path.write_text(PRETENDED, "utf-8")
    monkeypatch.setattr(engines, "WORKER", path)
    monkeypatch.setattr(engines, "make_files", lambda: None)


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """Results go into a folder of the test; what it returns reads them."""
    folder = tmp_path / "attnbook" / "data"
    folder.mkdir(parents=True)
    monkeypatch.setattr(engines, "CHAPTERS", tmp_path)

    def keep(name, results):
        (folder / f"{name}.json").write_text(json.dumps(results), "utf-8")

    monkeypatch.setattr(engines, "store", keep)
    return lambda: json.loads((folder / "engines.json").read_text("utf-8"))


@pytest.fixture
def tiny(monkeypatch):
    """A tiny model in place of the two, and writers whose times are given."""
    model = GPT(GPTConfig(vocab_size=9, d_model=8, n_heads=2, n_layers=1))
    monkeypatch.setattr(engines, "MODELS", {"tiny": lambda: (model, "peer")})
    monkeypatch.setattr(
        engines, "writers_of", lambda _: {"plain": "plain", "packed": "packed"}
    )
    monkeypatch.setattr(engines, "ours", lambda who, _: lambda: TAKEN[who])
    monkeypatch.setattr(
        engines, "theirs", lambda *_: lambda: TAKEN["transformers"]
    )


def asked(**other):
    """What `main` makes of the command line."""
    given = {
        "rounds": 2,
        "engines_python": sys.executable,
        "threads": [1, 2],
        "texts": [1],
        "read": [5],
        "models": ["tiny"],
        "note": "",
    }
    return argparse.Namespace(**given | other)


ABOUT = {"machine": {"processor": "A"}, "rounds": 2}


def test_a_ratio_is_that_of_the_times_beside_it(worker, kept, tiny):
    engines.measure(asked(), ABOUT)
    rows = kept()["rows"]["tiny"]
    assert list(rows) == ["1 × 1 × 5", "2 × 1 × 5"]
    for cores, found in enumerate(rows.values(), 1):
        seconds = TAKEN | {"quick": 5.0 * cores}  # as the worker says
        assert found["milliseconds"] == {
            who: [1000 * s] * 3 for who, s in seconds.items()
        }
        assert found["times as fast as"] == {
            peer: {
                who: [float(f"{seconds[peer] / seconds[who]:.4g}")] * 3
                for who in ("plain", "packed")
            }
            for peer in ("transformers", "quick")
        }
        assert (found["cores"], found["texts"], found["read"]) == (cores, 1, 5)
    assert kept()["engines"] == {"quick": "1.5"}


def test_what_is_missing_is_said_with_its_reason(worker, kept, tiny, capsys):
    engines.measure(asked(threads=[1]), ABOUT)
    said = capsys.readouterr().out.splitlines()
    assert "absent is left out for tiny: it is not installed" in said
    assert "odd is left out for tiny: RuntimeError: one text at a time" in said
    (row,) = kept()["rows"]["tiny"].values()
    assert not {"absent", "odd"} & set(row["milliseconds"])


def test_without_another_interpreter_the_book_is_measured(kept, tiny, capsys):
    engines.measure(asked(engines_python=None, threads=[2]), ABOUT)
    assert "engines are left out: --engines-python was not" in (
        capsys.readouterr().out
    )
    (row,) = kept()["rows"]["tiny"].values()
    assert set(row["milliseconds"]) == set(TAKEN)
    assert "engines" not in kept()


def test_rows_of_the_same_machine_are_kept_and_no_others(kept, tiny):
    engines.measure(asked(engines_python=None, threads=[1]), ABOUT)
    engines.measure(asked(engines_python=None, threads=[2]), ABOUT)
    assert list(kept()["rows"]["tiny"]) == ["1 × 1 × 5", "2 × 1 × 5"]
    other = ABOUT | {"machine": {"processor": "B"}}
    engines.measure(asked(engines_python=None, threads=[2]), other)
    assert list(kept()["rows"]["tiny"]) == ["2 × 1 × 5"]


def test_a_worker_that_ends_is_an_error(worker):
    engines.WORKER.write_text("", "utf-8")
    other = engines.OtherProcess([sys.executable, str(engines.WORKER)])
    with pytest.raises(RuntimeError, match="the other process has ended"):
        other.ask({"do": "about"})
    other.end()
    assert other.process.returncode == 0


# The worker itself. The engines are not installed where tests run.


def test_the_worker_says_which_packages_and_files_are_missing(
    tmp_path, monkeypatch
):
    there = {"xllamacpp": "1", "ctranslate2": None}
    monkeypatch.setattr(engine_worker, "installed", there.get)
    (tmp_path / "F32.gguf").touch()
    about = engine_worker.about(tmp_path)
    assert about["contenders"] == {
        "SmolLM2-135M": {
            "llama.cpp f32": "",
            "llama.cpp Q8_0": "there is no Q8_0.gguf",
            "llama.cpp Q4_1": "there is no Q4_1.gguf",
        },
        "GPT-2 small": {
            "CTranslate2 f32": "ctranslate2 is not installed",
            "CTranslate2 int8": "ctranslate2 is not installed",
        },
    }
    monkeypatch.setattr(engine_worker, "installed", lambda _: None)
    smol = engine_worker.about(tmp_path)["contenders"]["SmolLM2-135M"]
    assert set(smol.values()) == {"xllamacpp is not installed"}
    assert set(about["contenders"]) == set(engines.MODELS)


class Server:
    """In place of llama.cpp's: its answer has the times that it is given."""

    def __init__(self, told):
        self.told = told

    def handle_completions(self, asked):
        n = asked["n_predict"]
        assert len(asked["prompt"]) == 7
        if n == 1:
            return {"error": "no"}
        return json.dumps(
            {"timings": {"predicted_ms": 40.0 * (n - 1), "predicted_n": n}}
        )


def pretended_llama():
    """A module with as much of xllamacpp as the worker uses."""
    part = argparse.Namespace
    params = lambda: part(  # noqa: E731
        model=part(), cpuparams=part(), cpuparams_batch=part()
    )
    return part(CommonParams=params, Server=Server)


def test_a_step_is_the_mean_over_all_tokens_but_the_first(
    tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, "xllamacpp", pretended_llama())
    monkeypatch.setattr(engine_worker, "made", {})
    request = {
        "do": "run",
        "contender": "llama.cpp f32",
        "threads": 2,
        "texts": 1,
        "read": 7,
        "new": 17,
    }
    found = engine_worker.answer(request, tmp_path)
    assert found == {"seconds": pytest.approx(0.04)}
    told = engine_worker.made["llama.cpp f32", 2].told
    assert told.cpuparams.n_threads == told.cpuparams_batch.n_threads == 2
    assert told.model.path == str(tmp_path / "F32.gguf")
    # Another engine takes its place, so that only one has threads.
    engine_worker.answer(request | {"threads": 1}, tmp_path)
    assert list(engine_worker.made) == [("llama.cpp f32", 1)]


@pytest.mark.parametrize(
    "change, error",
    [
        ({"texts": 8}, "RuntimeError: this binding writes one text at a time"),
        ({"new": 1}, "RuntimeError: llama.cpp did not write: {'error': 'no'}"),
    ],
)
def test_what_the_worker_cannot_do_is_an_answer(
    tmp_path, monkeypatch, change, error
):
    monkeypatch.setitem(sys.modules, "xllamacpp", pretended_llama())
    request = {
        "do": "run",
        "contender": "llama.cpp Q8_0",
        "threads": 1,
        "texts": 1,
        "read": 7,
        "new": 17,
    }
    assert engine_worker.answer(request | change, tmp_path) == {"error": error}
