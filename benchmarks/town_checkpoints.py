"""Two checkpoints that are not the book's: transformers' models of the town.

A GPT-2 and a Llama of transformers are trained on the book's stories, and
stored as the published ones are: GPT-2's names have no prefix, and its causal
masks lie among the weights; the Llama is in bfloat16, with grouped queries and
Llama 3.1's rotation. Chapter 16 opens them. It takes two minutes.

usage: python benchmarks/town_checkpoints.py
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from results import CHAPTERS
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
)

from attnbook.town import WORDS, Town
from attnbook.training import Recipe, train

RECIPE = Recipe(
    steps=1500, batch_size=16, peak=5e-3, warmup=100, weight_decay=0.01
)
CONTEXT = Town().longest
WIDTH = 48
HEADS = 4
LAYERS = 2
#: What both have in common.
BOTH: dict[str, Any] = {
    "vocab_size": len(WORDS),
    "initializer_range": 0.125,
    "bos_token_id": None,
    "eos_token_id": None,
}
GPT2 = GPT2Config(
    n_positions=CONTEXT,
    n_embd=WIDTH,
    n_head=HEADS,
    n_layer=LAYERS,
    resid_pdrop=0.0,
    embd_pdrop=0.0,
    attn_pdrop=0.0,
    **BOTH,
)
LLAMA = LlamaConfig(
    max_position_embeddings=CONTEXT,
    hidden_size=WIDTH,
    intermediate_size=128,
    num_hidden_layers=LAYERS,
    num_attention_heads=HEADS,
    num_key_value_heads=2,
    rope_parameters={
        "rope_type": "llama3",
        "rope_theta": 100.0,
        "factor": 4.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 40,
    },
    **BOTH,
)


class Logits(nn.Module):
    """A model of transformers that returns its logits alone, as a GPT does."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor) -> Tensor:
        return self.model(tokens).logits


def as_published(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """GPT-2's tensors under the names that the published files have.

    The names lose their prefix, and the causal masks are added.
    """
    found = {n.removeprefix("transformer."): t for n, t in tensors.items()}
    mask = torch.ones(1, 1, CONTEXT, CONTEXT).tril()
    masks = {f"h.{n}.attn.bias": mask.clone() for n in range(LAYERS)}
    return found | masks


def main(folder: Path) -> None:
    """Train both models, and store each in a folder of its own."""
    kinds: dict[str, tuple[Any, Any]] = {
        "town_gpt2": (GPT2LMHeadModel, GPT2),
        "town_llama": (LlamaForCausalLM, LLAMA),
    }
    for name, (kind, config) in kinds.items():
        torch.manual_seed(RECIPE.seed)
        model = kind(config)
        into = folder / name
        losses = train(Logits(model), Town().batches, RECIPE)
        if name == "town_llama":
            model = model.bfloat16()
        model.save_pretrained(into)
        (into / "generation_config.json").unlink()
        file = into / "model.safetensors"
        about = into / "config.json"
        if name == "town_gpt2":
            save_file(as_published(load_file(file)), file, {"format": "pt"})
        described = json.loads(about.read_text("utf-8"))
        described.pop("transformers_version")
        about.write_text(json.dumps(described, indent=1) + "\n", "utf-8")
        print(f"stored {name}: loss {sum(losses[-50:]) / 50:.4f}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(*sys.argv[1:]) if sys.argv[1:] else CHAPTERS / "attnbook/data")
