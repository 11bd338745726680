"""Small random models of transformers, which ours are compared with."""

from functools import partial

import torch
from models import random_tokens
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM

VOCABULARY = 37
#: Sizes, under the names that a file has.
SMALL = {
    "gpt2": dict(n_positions=24, n_embd=24, n_head=4, n_layer=2),
    "llama": {
        "hidden_size": 24,
        "intermediate_size": 41,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 64,
    },
}
SMALL |= dict.fromkeys(("mistral", "qwen2"), SMALL["llama"])
SMALL["qwen3"] = SMALL["llama"] | {"head_dim": 6}


def their_config(family, **changes):
    """A small configuration of theirs, with what is changed in it."""
    own = {"vocab_size": VOCABULARY, "bos_token_id": 0, "eos_token_id": 0}
    return AutoConfig.for_model(family, **own | SMALL[family] | changes)


def their_model(family, *, std=0.3, **changes):
    """A random model of theirs, in which nothing is 0 or 1."""
    torch.manual_seed(len(changes))
    config = their_config(family, **changes)
    theirs = AutoModelForCausalLM.from_config(config)
    for name, parameter in theirs.named_parameters():
        # About 1 is what a norm multiplies by.
        scale = parameter.ndim == 1 and name.endswith("weight")
        nn.init.normal_(parameter, mean=float(scale), std=std)
    theirs.generation_config.eos_token_id = None  # never stop
    return theirs.eval()


tokens_of = partial(random_tokens, VOCABULARY)


def exact(theirs):
    """A Llama that takes norms and angles in float64 too.

    Transformers takes them in float32 whatever the type of the model, so
    that no two of its results agree any better.
    """

    class Norm(type(theirs.model.norm)):
        def forward(self, x):
            square = x.square().mean(-1, keepdim=True)
            return self.weight * x * (square + self.variance_epsilon) ** -0.5

    class Rotary(type(theirs.model.rotary_emb)):
        def forward(self, x, position_ids):
            width = self.config.head_dim
            base = self.config.rope_parameters["rope_theta"]
            pair = torch.arange(0, width, 2, dtype=torch.float64) / width
            angles = (position_ids[..., None] * base**-pair).repeat(1, 1, 2)
            return angles.cos(), angles.sin()

    for module in theirs.modules():
        kind = type(module).__name__
        if kind.endswith(("RMSNorm", "RotaryEmbedding")):
            module.__class__ = Norm if "Norm" in kind else Rotary
    return theirs
