"""The published GPT-2, for which a random one of its layout stands in."""

import json
import re
from unittest.mock import Mock

import pytest
import real_model
import torch
from safetensors.torch import load_file, save_file
from theirs import their_model
from tokenizers import ByteLevelBPETokenizer


def published(folder):
    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train_from_iterator([real_model.PARAGRAPH], vocab_size=300)
    tokenizer.save_model(str(folder))
    count = tokenizer.get_vocab_size()
    model = their_model("gpt2", vocab_size=count, n_positions=512, std=0.2)
    model.save_pretrained(folder)
    file = folder / "model.safetensors"
    named = load_file(file).items()
    tensors = {n.removeprefix("transformer."): p for n, p in named}
    masks = {f"h.{n}.attn.bias": torch.ones(1, 1, 512, 512) for n in (0, 1)}
    save_file(tensors | masks, file, {"format": "pt"})


def test_it_is_compared_and_stored_or_nothing_is(tmp_path, monkeypatch):
    published(tmp_path)
    stored = tmp_path / "real_model.json"
    monkeypatch.setattr(real_model, "BOUND", 0)
    with pytest.raises(SystemExit, match="nothing was stored; expected equal"):
        real_model.main(str(tmp_path), stored)
    assert not stored.exists()
    monkeypatch.undo()
    real_model.main(str(tmp_path), stored)
    found = json.loads(stored.read_text())
    assert found["loss"] == pytest.approx(found["their_loss"], abs=1e-3)
    assert len(found["sha256"]) == 64 and len(found["logits"]) == 5


def test_without_a_network_it_says_so(tmp_path, monkeypatch):
    away = Mock(side_effect=ConnectionError("no route"))
    monkeypatch.setattr(real_model, "hf_hub_download", away)
    monkeypatch.setattr(real_model, "urlopen", away)
    with pytest.raises(SystemExit, match="not fetched.*got ConnectionError"):
        real_model.main("gpt2", tmp_path / "real_model.json")
    assert not any(tmp_path.iterdir())


def test_each_file_is_asked_for_in_one_fixed_state(tmp_path, monkeypatch):
    hub = Mock(return_value=str(tmp_path / "model.safetensors"))
    monkeypatch.setattr(real_model, "hf_hub_download", hub)
    assert real_model.fetched("gpt2-medium") == tmp_path
    asked = {call.args[1]: call.kwargs["revision"] for call in hub.mock_calls}
    assert set(asked) == set(real_model.FILES)
    assert set(asked.values()) == {real_model.REVISIONS["gpt2-medium"]}
    states = real_model.REVISIONS.values()
    assert all(re.fullmatch("[0-9a-f]{40}", state) for state in states)
