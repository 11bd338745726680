"""What the library says where it refuses something, call by call.

Each row is a call, the kind of error, and the whole sentence; "…" stands for
what depends on the machine. The last test holds that every `raise` in these
rooms, and every check of a number, a size or a name, is met by some row.
"""

import ast
import json
import math
import re
import traceback
from dataclasses import dataclass
from pathlib import Path

import pytest
import safetensors.torch
import torch
from notebooks import CHAPTERS
from torch import ones

from attnbook import files, kernel
from attnbook.answers import answer_batch, preference_loss
from attnbook.attention import (
    check_heads,
    check_inputs,
    merge_heads,
    scaled_dot_product_attention,
    softmax,
    split_heads,
)
from attnbook.compiled import compile_steps
from attnbook.config import check_fields, option
from attnbook.families import config_of
from attnbook.fast import pack
from attnbook.feed_forward import FeedForward, SwiGLU
from attnbook.files import read_weights
from attnbook.gpt import GPT, GPTConfig
from attnbook.gptq import best_rounding, gptq, gptq_slowly
from attnbook.hybrid import StateGPT, StateLayer
from attnbook.latent import LatentAttention, use_latent
from attnbook.layers import (
    MultiHeadAttention,
    SelfAttention,
    TransformerBlock,
)
from attnbook.lora import LoRALinear, add_lora
from attnbook.masks import (
    causal_mask,
    check_mask,
    combine,
    convert,
    padding_mask,
    window_mask,
)
from attnbook.merging import attend_to_part, merge, tiled_attention
from attnbook.norms import LayerNorm, RMSNorm, make_norm
from attnbook.pooling import pool_heads
from attnbook.positions import (
    alibi_slopes,
    half_order,
    rotary_angles,
    rotate,
    token_positions,
)
from attnbook.pretrained import (
    load,
    load_model,
    load_tokenizer,
    rename,
    save_model,
)
from attnbook.quantised import bits_a_weight, by_range, by_scale
from attnbook.quantised import pack as pack_codes
from attnbook.reward import (
    advantages,
    best_law,
    best_law_forward,
    clipped_gain,
)
from attnbook.rounded_cache import RoundedCache, to_blocks
from attnbook.shapes import check_tokens, expect
from attnbook.state import in_chunks
from attnbook.values import check_sizes, number, one_of, whole
from attnbook.vocabulary import Vocabulary
from attnbook.window import read_window, sink_mask

HOUSE = CHAPTERS / "attnbook"
SEEN = torch.ones(2, 2) > 0
Q = torch.ones(2, 4)
FAR = torch.tensor([1e30, -1e30, 1e30, -1e30])
X = torch.ones(3, 8)
PAIR = torch.ones(1, 2, dtype=torch.int64)
TWO = torch.ones(2, 3, 4)
FIVE = torch.ones(5, 3, 4)


@dataclass(frozen=True)
class Options:
    steps: int = option(10, "updates", at_least=1)
    share: float = option(0.5, "a part", at_least=0, below=1)
    betas: tuple[float, float] = option((0, 0.9), "two", at_least=0, below=1)
    norm: str = option("layer", "kind", choices=("layer", "rms"))
    bias: bool = option(True, "added")

    def __post_init__(self):
        check_fields(self)


SIZES = {
    "vocab_size": 11,
    "context": 8,
    "d_model": 8,
    "n_heads": 2,
    "n_layers": 1,
}


def gpt():
    return GPT(GPTConfig(**SIZES))


def kernel_without_triton():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel, "MISSING", "the kernel needs Triton")
        kernel.kernel_attention(Q, Q, Q)


def kernel_with_a_tile_of(tile):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel, "MISSING", "")
        kernel.kernel_attention(Q, Q, Q, tile=tile)


def states():
    """A model of two layers, the second of which attends, and its cache."""
    model = StateGPT(GPTConfig(**SIZES | {"n_layers": 2}), every=2)
    return model, model.new_cache(1)


def with_a_plain_cache():
    model, _ = states()
    with torch.no_grad():
        model(PAIR, cache=GPT.new_cache(model, 1))


def with_two_adapters():
    model = gpt()
    add_lora(model, 1, 1, layers=["query"])
    add_lora(model, 1, 1, layers=["query"])


GPT2 = {
    "model_type": "gpt2",
    "vocab_size": 11,
    "n_positions": 8,
    "n_embd": 8,
    "n_head": 2,
    "n_layer": 1,
}
LLAMA = {
    "model_type": "llama",
    "vocab_size": 11,
    "max_position_embeddings": 8,
    "hidden_size": 8,
    "num_attention_heads": 2,
    "num_hidden_layers": 1,
    "intermediate_size": 12,
}
MISTRAL = LLAMA | {"model_type": "mistral"}
BERT = LLAMA | {"model_type": "bert", "type_vocab_size": 2}


def without(settings, name):
    return {key: value for key, value in settings.items() if key != name}


def put(path, content):
    """Write a file; the result is its path."""
    path.write_bytes(content)
    return path


def weights():
    return safetensors.torch.save({"x": ones(3)})


def with_file(folder, name):
    """A folder in which there is a file with an empty JSON object."""
    put(folder / name, b"{}")
    return folder


def sharded(folder, **places):
    """A folder with an index, and one file with the tensor x beside it."""
    put(folder / "part.safetensors", weights())
    index = json.dumps({"weight_map": places}).encode()
    put(folder / "model.safetensors.index.json", index)
    return folder


TABLE = "wpe.weight"
MATRIX = "h.0.mlp.c_fc.weight"
BIAS = "ln_f.bias"
HEAD = "lm_head.weight"


def published(folder, *, settings=None, lost=None, renamed=None, more=None):
    """A small GPT-2's checkpoint with something wrong in it."""
    tensors = {
        "wte.weight": ones(11, 8),
        TABLE: ones(8, 8),
        "h.0.ln_1.weight": ones(8),
        "h.0.ln_1.bias": ones(8),
        "h.0.attn.c_attn.weight": ones(8, 24),
        "h.0.attn.c_attn.bias": ones(24),
        "h.0.attn.c_proj.weight": ones(8, 8),
        "h.0.attn.c_proj.bias": ones(8),
        "h.0.ln_2.weight": ones(8),
        "h.0.ln_2.bias": ones(8),
        MATRIX: ones(8, 32),
        "h.0.mlp.c_fc.bias": ones(32),
        "h.0.mlp.c_proj.weight": ones(32, 8),
        "h.0.mlp.c_proj.bias": ones(8),
        "ln_f.weight": ones(8),
        BIAS: ones(8),
    }
    tensors |= more or {}
    if lost is not None:
        del tensors[lost]
    if renamed is not None:
        tensors[f"{renamed}es"] = tensors.pop(renamed)
    put(folder / "model.safetensors", safetensors.torch.save(tensors))
    described = json.dumps(GPT2 | (settings or {})).encode()
    put(folder / "config.json", described)
    return folder


TOO_LONG = b" " * (files.MOST_JSON + 1)
#: A whole GGUF file, in which there is nothing.
EMPTY_GGUF = b"GGUF" + (3).to_bytes(4, "little") + bytes(16)


def saved(folder, words):
    """A model of eleven tokens, with these words for a vocabulary."""
    path = folder / "model"
    save_model(path, gpt(), Vocabulary(words))
    return path


ROWS = [
    # values
    (
        lambda: whole("steps", 2.5, at_least=1),
        TypeError,
        "steps is of the wrong type; expected a whole number, at least 1; "
        "got 2.5",
    ),
    (
        lambda: whole("steps", True),
        TypeError,
        "steps is of the wrong type; expected a whole number; got True",
    ),
    (
        lambda: whole("steps", 0, at_least=1),
        ValueError,
        "steps is not allowed; expected a whole number, at least 1; got 0",
    ),
    (
        lambda: number("dropout", "0.1", at_least=0, below=1),
        TypeError,
        "dropout is of the wrong type; expected a finite number, at least 0, "
        "below 1; got '0.1'",
    ),
    (
        lambda: number("dropout", True),
        TypeError,
        "dropout is of the wrong type; expected a finite number; got True",
    ),
    (
        lambda: number("dropout", math.nan, at_least=0, below=1),
        ValueError,
        "dropout is not allowed; expected a finite number, at least 0, below "
        "1; got nan",
    ),
    (
        lambda: number("dropout", 1, at_least=0, below=1),
        ValueError,
        "dropout is not allowed; expected a finite number, at least 0, below "
        "1; got 1",
    ),
    (
        lambda: check_sizes(d_k=8, d_v=0),
        ValueError,
        "d_v is not allowed; expected a whole number, at least 1; got 0",
    ),
    (
        lambda: one_of("norm", "batch", ("layer", "rms")),
        ValueError,
        "norm is not allowed; expected one of layer, rms; got 'batch'",
    ),
    (
        lambda: one_of("norm", None, ("layer", "rms")),
        ValueError,
        "norm is not allowed; expected one of layer, rms; got None",
    ),
    # config
    (
        lambda: Options(steps=0),
        ValueError,
        "steps is not allowed; expected a whole number, at least 1; got 0",
    ),
    (
        lambda: Options(share=2.0),
        ValueError,
        "share is not allowed; expected a finite number, at least 0, below "
        "1; got 2.0",
    ),
    (
        lambda: Options(betas=(0.9,)),
        TypeError,
        "betas is of the wrong type; expected 2 values; got (0.9,)",
    ),
    (
        lambda: Options(norm="batch"),
        ValueError,
        "norm is not allowed; expected one of layer, rms; got 'batch'",
    ),
    (
        lambda: Options(bias="no"),
        TypeError,
        "bias is of the wrong type; expected bool; got 'no'",
    ),
    # shapes
    (
        lambda: expect("float", q=([1.0], "... T d")),
        TypeError,
        "q is of the wrong type; expected a tensor of floating-point "
        "numbers; got a value of type list",
    ),
    (
        lambda: expect("integer", tokens=(ones(2, 3), "B T")),
        TypeError,
        "tokens is of the wrong type; expected a tensor of integers; got one "
        "of torch.float32",
    ),
    (
        lambda: expect("float", q=(Q, "T d"), k=(Q.double(), "S d")),
        TypeError,
        "q, k are of different types; expected one type of floating-point "
        "numbers for all; got q of torch.float32, k of torch.float64",
    ),
    (
        lambda: expect("bool or float", mask=(ones(2, 3).int(), "...")),
        TypeError,
        "mask is of the wrong type; expected a tensor of booleans or "
        "floating-point numbers; got one of torch.int32",
    ),
    (
        lambda: expect(torch.float64, x=(ones(2), "d")),
        TypeError,
        "x is of the wrong type; expected a tensor of torch.float64; got one "
        "of torch.float32",
    ),
    (
        lambda: expect(q=(ones(3), "... T d")),
        ValueError,
        "q has no axis T; expected q (..., T, d); got q (3,)",
    ),
    (
        lambda: expect(tokens=(ones(1, 2, 3), "B T")),
        ValueError,
        "tokens has 3 axes; expected tokens (B, T); got tokens (1, 2, 3)",
    ),
    (
        lambda: expect(x=(ones(3, 4), "T d"), d=5),
        ValueError,
        "axis d of x is 4; expected x (T, d=5); got x (3, 4)",
    ),
    (
        lambda: expect(q=(ones(3, 4), "T d_k"), k=(ones(5, 6), "S d_k")),
        ValueError,
        "d_k is both 4 and 6; expected q (T, d_k), k (S, d_k); got q (3, 4), "
        "k (5, 6)",
    ),
    (
        lambda: expect(x=(ones(0, 4), "T d")),
        ValueError,
        "axis T of x is empty; expected x (T, d); got x (0, 4)",
    ),
    (
        lambda: expect(q=(TWO, "... T d"), k=(FIVE, "... S d")),
        ValueError,
        "the leading axes do not broadcast; expected q (..., T, d), k (..., "
        "S, d); got q (2, 3, 4), k (5, 3, 4)",
    ),
    (
        lambda: check_tokens(ones(8, 4), "... T d_model", ones(3, 5)),
        ValueError,
        "axis d_model of x is 5; expected x (..., T, d_model=4); got x (3, 5)",
    ),
    (
        lambda: check_tokens(ones(8, 4), "... T d_model", [[1.0]]),
        TypeError,
        "x is of the wrong type; expected a tensor of torch.float32; got a "
        "value of type list",
    ),
    # masks
    (
        lambda: causal_mask(0),
        ValueError,
        "n_queries is not allowed; expected a whole number, at least 1; got 0",
    ),
    (
        lambda: causal_mask(5, 3),
        ValueError,
        "n_keys is not allowed; expected a whole number, at least 5; got 3",
    ),
    (
        lambda: window_mask(3, window=0),
        ValueError,
        "window is not allowed; expected a whole number, at least 1; got 0",
    ),
    (
        lambda: padding_mask([2, 1], side="top"),
        ValueError,
        "side is not allowed; expected one of left, right; got 'top'",
    ),
    (
        lambda: padding_mask([1.5]),
        TypeError,
        "a length is of the wrong type; expected a whole number; got 1.5",
    ),
    (
        lambda: padding_mask([2, -1]),
        ValueError,
        "the shortest length is not allowed; expected a whole number, at "
        "least 0; got -1",
    ),
    (
        lambda: combine(),
        ValueError,
        "there is nothing to combine; expected at least one mask; got none",
    ),
    (
        lambda: combine(SEEN, [[True]]),
        TypeError,
        "mask 1 is of the wrong type; expected a tensor of booleans; got a "
        "value of type list",
    ),
    (
        lambda: combine(SEEN, causal_mask(3)),
        ValueError,
        "the leading axes do not broadcast; expected mask 0 (...), mask 1 "
        "(...); got mask 0 (2, 2), mask 1 (3, 3)",
    ),
    (
        lambda: convert(SEEN, "sdpa", "keras"),
        ValueError,
        "target is not allowed; expected one of sdpa, multihead, "
        "transformers, additive; got 'keras'",
    ),
    (
        lambda: convert(SEEN, "keras", "sdpa"),
        ValueError,
        "source is not allowed; expected one of sdpa, multihead, "
        "transformers, additive; got 'keras'",
    ),
    (
        lambda: convert(SEEN.int() * 2, "transformers", "sdpa"),
        ValueError,
        "mask is no mask of the convention 'transformers'; expected integer, "
        "1 = real token, 0 = padding; got 2 in it",
    ),
    (
        lambda: token_positions(torch.tensor([[0, 2]])),
        ValueError,
        "real is no mask of the convention 'transformers'; expected integer, "
        "1 = real token, 0 = padding; got 2 in it",
    ),
    (
        lambda: convert(SEEN, "additive", "sdpa"),
        TypeError,
        "mask is of the wrong type; expected a tensor of floating-point "
        "numbers; got one of torch.bool",
    ),
    (
        lambda: check_mask(SEEN, (3, 2, 3)),
        ValueError,
        "the mask does not fit the scores; expected a shape that broadcasts "
        "to (3, 2, 3); got (2, 2)",
    ),
    (
        lambda: check_mask(torch.tensor([math.nan]), (1,)),
        ValueError,
        "the mask cannot be added to scores; expected finite numbers, or "
        "−inf where a query may not attend; got nan",
    ),
    # attention
    (
        lambda: softmax(ones(3), 1),
        ValueError,
        "dim is not allowed; expected a whole number, at least -1, below 1; "
        "got 1",
    ),
    (
        lambda: softmax(ones(3, 0)),
        ValueError,
        "axis -1 of the scores is empty; expected at least one score to "
        "share the weight; got shape (3, 0)",
    ),
    (
        lambda: softmax(torch.tensor([math.inf, 1.0])),
        ValueError,
        "a score is +inf, and no weight could be shared with it; expected "
        "finite numbers, or −inf for a weight of 0; got +inf",
    ),
    (
        lambda: softmax(torch.tensor([1, 2])),
        TypeError,
        "scores is of the wrong type; expected a tensor of floating-point "
        "numbers; got one of torch.int64",
    ),
    (
        lambda: split_heads(ones(3, 8), 0),
        ValueError,
        "n_heads is not allowed; expected a whole number, at least 1; got 0",
    ),
    (
        lambda: split_heads(ones(3, 8), 3),
        ValueError,
        "d_model cannot be shared out among n_heads; expected a multiple; "
        "got d_model 8 and n_heads 3",
    ),
    (
        lambda: merge_heads(ones(3, 8)),
        ValueError,
        "x has no axis H; expected x (..., H, T, d); got x (3, 8)",
    ),
    (
        lambda: check_heads(8, 0),
        ValueError,
        "n_heads is not allowed; expected a whole number, at least 1; got 0",
    ),
    (
        lambda: check_heads(8, 3),
        ValueError,
        "d_model cannot be shared out among n_heads; expected a multiple; "
        "got d_model 8 and n_heads 3",
    ),
    (
        lambda: check_heads(8, 4, 3),
        ValueError,
        "n_heads cannot share n_kv_heads evenly; expected a multiple; got "
        "n_heads 4 and n_kv_heads 3",
    ),
    (
        lambda: check_inputs(Q, Q * math.nan, Q),
        ValueError,
        "k contains NaN or infinity; expected finite numbers; got nan",
    ),
    (
        lambda: check_inputs(Q, Q, Q, None, "1"),
        TypeError,
        "scale is of the wrong type; expected a finite number; got '1'",
    ),
    (
        lambda: check_inputs(Q, Q, Q, ones(2, 3) > 0),
        ValueError,
        "the mask does not fit the scores; expected a shape that broadcasts "
        "to (2, 2); got (2, 3)",
    ),
    (
        lambda: scaled_dot_product_attention(Q * 1e30, Q * FAR, Q),
        ValueError,
        "context contains NaN or infinity; expected finite numbers; got nan",
    ),
    # norms
    (
        lambda: make_norm("layer", 0),
        ValueError,
        "width is not allowed; expected a whole number, at least 1; got 0",
    ),
    (
        lambda: make_norm("layer", 4, eps=-1),
        ValueError,
        "eps is not allowed; expected a finite number, at least 0; got -1",
    ),
    (
        lambda: make_norm("batch", 4),
        ValueError,
        "norm is not allowed; expected one of layer, rms; got 'batch'",
    ),
    (
        lambda: LayerNorm(3)(ones(2, 4)),
        ValueError,
        "axis width of x is 4; expected x (..., width=3); got x (2, 4)",
    ),
    (
        lambda: RMSNorm(3)(ones(2, 3).double()),
        TypeError,
        "x is of the wrong type; expected a tensor of torch.float32; got one "
        "of torch.float64",
    ),
    # feed_forward
    (
        lambda: FeedForward(0),
        ValueError,
        "d_model is not allowed; expected a whole number, at least 1; got 0",
    ),
    (
        lambda: FeedForward(4, dropout=1),
        ValueError,
        "dropout is not allowed; expected a finite number, at least 0, below "
        "1; got 1",
    ),
    (
        lambda: FeedForward(4, activation="tanh"),
        ValueError,
        "activation is not allowed; expected one of relu, gelu, gelu_tanh, "
        "silu; got 'tanh'",
    ),
    (
        lambda: SwiGLU(0),
        ValueError,
        "d_model is not allowed; expected a whole number, at least 1; got 0",
    ),
    (
        lambda: SwiGLU(4, dropout=-0.5),
        ValueError,
        "dropout is not allowed; expected a finite number, at least 0, below "
        "1; got -0.5",
    ),
    (
        lambda: FeedForward(4)(ones(2, 3)),
        ValueError,
        "axis d_model of x is 3; expected x (..., d_model=4); got x (2, 3)",
    ),
    (
        lambda: MultiHeadAttention(4, 2)(
            ones(2, 3, 4), mask=ones(2, 1, 3) > 0
        ),
        ValueError,
        "the mask's first axis may mean the 2 texts or the 2 heads; expected "
        "a mask with an axis for texts, heads, queries and keys each, such as "
        "real[:, None, None, :] for padding or mask[None, None] for one that "
        "all texts share; got one of shape (2, 1, 3)",
    ),
    # positions
    (
        lambda: rotary_angles(torch.arange(3), 4, base=0.5),
        ValueError,
        "base is not allowed; expected a finite number, at least 1; got 0.5",
    ),
    (
        lambda: rotary_angles(ones(3), 4),
        TypeError,
        "positions is of the wrong type; expected a tensor of integers; got "
        "one of torch.float32",
    ),
    (
        lambda: rotary_angles(torch.arange(3), 0),
        ValueError,
        "width is not allowed; expected a whole number, at least 2; got 0",
    ),
    (
        lambda: half_order(5),
        ValueError,
        "width is odd, but components are turned in pairs; expected an even "
        "number; got 5",
    ),
    (
        lambda: rotate(ones(3, 4), ones(3, 2), layout="pairs"),
        ValueError,
        "layout is not allowed; expected one of half, interleaved; got "
        "'pairs'",
    ),
    (
        lambda: rotate(ones(3, 4), ones(3, 3)),
        ValueError,
        "axis pairs of angles is 3; expected x (..., d=4), angles (..., "
        "pairs=2); got x (3, 4), angles (3, 3)",
    ),
    (
        lambda: alibi_slopes(0),
        ValueError,
        "n_heads is not allowed; expected a whole number, at least 1; got 0",
    ),
    (
        lambda: token_positions(ones(2, 3)),
        TypeError,
        "real is of the wrong type; expected a tensor of integers; got one "
        "of torch.float32",
    ),
    # layers
    (
        lambda: SelfAttention(0, 4),
        ValueError,
        "d_in is not allowed; expected a whole number, at least 1; got 0",
    ),
    (
        lambda: SelfAttention(4, 4)(ones(3, 5)),
        ValueError,
        "axis d_in of x is 5; expected x (..., T, d_in=4); got x (3, 5)",
    ),
    (
        lambda: MultiHeadAttention(8, 2, dropout=1.5),
        ValueError,
        "dropout is not allowed; expected a finite number, at least 0, below "
        "1; got 1.5",
    ),
    (
        lambda: MultiHeadAttention(8, 2, d_head=0),
        ValueError,
        "d_head is not allowed; expected a whole number, at least 1; got 0",
    ),
    (
        lambda: MultiHeadAttention(8, 3),
        ValueError,
        "d_model cannot be shared out among n_heads; expected a multiple; "
        "got d_model 8 and n_heads 3",
    ),
    (
        lambda: MultiHeadAttention(8, 2, rotary=True)(X, X),
        ValueError,
        "a layer with rotary positions cannot look at a memory, because it "
        "rotates keys by the positions of x; expected memory=None; got a "
        "memory",
    ),
    (
        lambda: MultiHeadAttention(8, 2).project(X, X, cache=object()),
        ValueError,
        "a layer with a cache cannot look at a memory, because the cache "
        "holds the keys of earlier tokens of x; expected memory=None; got a "
        "memory",
    ),
    (
        lambda: MultiHeadAttention(8, 2)(X, mask=ones(2, 2) > 0),
        ValueError,
        "the mask does not fit the scores; expected a shape that broadcasts "
        "to (2, 3, 3); got (2, 2)",
    ),
    (
        lambda: MultiHeadAttention(8, 2)(X, X[:, :4]),
        ValueError,
        "d_model is both 8 and 4; expected x (..., T, d_model), memory (..., "
        "S, d_model); got x (3, 8), memory (3, 4)",
    ),
    (
        lambda: TransformerBlock(8, 2, activation="tanh"),
        ValueError,
        "activation is not allowed; expected one of relu, gelu, gelu_tanh, "
        "silu, swiglu; got 'tanh'",
    ),
    # gpt
    (
        lambda: GPTConfig(d_model=0),
        ValueError,
        "d_model is not allowed; expected a whole number, at least 1; got 0",
    ),
    (
        lambda: GPTConfig(positions="relative"),
        ValueError,
        "positions is not allowed; expected one of learned, sinusoidal, "
        "rotary, alibi, none; got 'relative'",
    ),
    (
        lambda: GPTConfig(rotary_scaling=(4.0, 4.0, 1.0, 8192.0)),
        ValueError,
        "rotary_scaling's high is not allowed; expected a finite number, "
        "above 4.0; got 1.0",
    ),
    (
        lambda: GPTConfig(d_model=10, n_heads=4),
        ValueError,
        "d_model cannot be shared out among n_heads; expected a multiple; "
        "got d_model 10 and n_heads 4",
    ),
    (
        lambda: gpt()(torch.tensor([[1, 11]])),
        ValueError,
        "a token is not in the model's vocabulary; expected numbers from 0 "
        "to 10; got 11",
    ),
    (
        lambda: gpt()(ones(1, 9).long()),
        ValueError,
        "the text's length is more than the model's context, because there "
        "is a learned vector for each position in it; expected at most 8 "
        "tokens; got 9",
    ),
    (
        lambda: gpt()([[1, 2]]),
        TypeError,
        "tokens is of the wrong type; expected a tensor of integers; got a "
        "value of type list",
    ),
    (
        lambda: gpt()(ones(1, 2).long(), real=ones(1, 3) > 0),
        ValueError,
        "axis T of real is 3; expected real (B=1, T=2); got real (1, 3)",
    ),
    (
        lambda: gpt()(PAIR, real=PAIR, segments=PAIR),
        ValueError,
        "segments stand alone; expected padding to have a segment of its own, "
        "and no cache; got real beside segments",
    ),
    # merging
    (
        lambda: attend_to_part(Q, Q[:, :1], Q),
        ValueError,
        "d_k is both 4 and 1; expected q (..., T, d_k), k (..., S, d_k), v "
        "(..., S, d_v); got q (2, 4), k (2, 1), v (2, 4)",
    ),
    (
        lambda: attend_to_part(Q, Q.double(), Q),
        TypeError,
        "q, k, v are of different types; expected one type of floating-point "
        "numbers for all; got q of torch.float32, k of torch.float64, v of "
        "torch.float32",
    ),
    (
        lambda: attend_to_part(Q, Q, Q, mask=ones(2, 2)),
        TypeError,
        "mask is of the wrong type; expected a tensor of booleans; got one "
        "of torch.float32",
    ),
    (
        lambda: merge(attend_to_part(Q, Q, Q), attend_to_part(Q[:1], Q, Q)),
        ValueError,
        "T is both 2 and 1; expected peak of a (..., T, 1), total of a (..., "
        "T, 1), context of a (..., T, d_v), peak of b (..., T, 1), total of "
        "b (..., T, 1), context of b (..., T, d_v); got peak of a (2, 1), "
        "total of a (2, 1), context of a (2, 4), peak of b (1, 1), total of "
        "b (1, 1), context of b (1, 4)",
    ),
    (
        lambda: tiled_attention(Q, Q, Q, rows=0),
        ValueError,
        "rows is not allowed; expected a whole number, at least 1; got 0",
    ),
    # kernel
    (
        lambda: kernel_without_triton(),
        RuntimeError,
        "the kernel needs Triton",
    ),
    (
        lambda: kernel_with_a_tile_of(8),
        ValueError,
        "tile is not allowed; expected a whole number, at least 16; got 8",
    ),
    (
        lambda: kernel_with_a_tile_of(24),
        ValueError,
        "tile must be a power of 2, as Triton wants it; expected 16, 32, 64 "
        "and so on; got 24",
    ),
    # fast
    (
        lambda: pack(pack(gpt())),
        ValueError,
        "this model cannot be packed, because it is packed already; expected "
        "a GPT with nn.Linear layers; got one without any",
    ),
    (
        lambda: pack(gpt().double()),
        ValueError,
        "this model cannot be packed, because oneDNN's kernels are for "
        "float32 on a CPU; expected model.to('cpu', torch.float32); got one "
        "on cpu in torch.float64",
    ),
    # quantised, gptq, rounded_cache
    (
        lambda: by_scale(X, 1),
        ValueError,
        "bits is not allowed; expected a whole number, at least 2, at most 8; "
        "got 1",
    ),
    (
        lambda: by_range(X, 4, 0),
        ValueError,
        "group is not allowed; expected a whole number, at least 1; got 0",
    ),
    (
        lambda: by_scale(X, 4, 3),
        ValueError,
        "the rows cannot be cut into groups of 3; expected a number that "
        "divides their length, 8",
    ),
    (
        lambda: bits_a_weight(4, 0),
        ValueError,
        "group is not allowed; expected a whole number, at least 1; got 0",
    ),
    (
        lambda: pack_codes(X, 3),
        ValueError,
        "codes are packed in 4 or 8 bits here, so that bytes are full; got 3",
    ),
    (
        lambda: pack_codes(X[:, :5], 4),
        ValueError,
        "two codes of 4 bits share a byte, so a row needs an even number of "
        "them; got 5",
    ),
    (
        lambda: gptq_slowly(X, torch.eye(8), 4, 0),
        ValueError,
        "group is not allowed; expected a whole number, at least 1; got 0",
    ),
    (
        lambda: gptq(X, torch.eye(8), 4, 0),
        ValueError,
        "group is not allowed; expected a whole number, at least 1; got 0",
    ),
    (
        lambda: gptq(X, torch.eye(8), 4, damping=-1),
        ValueError,
        "damping is not allowed; expected a finite number, at least 0; got -1",
    ),
    (
        lambda: gptq(X, torch.zeros(8, 8), 4),
        ValueError,
        "the moments of the inputs are not positive definite; expected those "
        "of real inputs, with a damping above 0 if some inputs are 0 or "
        "depend on each other",
    ),
    (
        lambda: best_rounding(X[0], torch.eye(8), X[0, 0], 4),
        ValueError,
        "a row of 8 weights in 4 bits can be rounded in 2,562,890,625 ways; "
        "expected at most a million, to try them all",
    ),
    (
        lambda: RoundedCache(1, 4, n_layers=1, n_heads=1, d_k=0),
        ValueError,
        "d_k is not allowed; expected a whole number, at least 1; got 0",
    ),
    (
        lambda: to_blocks(X.clone().requires_grad_(), 4),
        TypeError,
        "keys and values that record gradients cannot be rounded for a "
        "cache; expected a call under torch.inference_mode() or "
        "torch.no_grad(); got requires_grad=True",
    ),
    (
        lambda: to_blocks(torch.tensor([[-1e5, 0]]), 4),
        ValueError,
        "keys and values cannot be rounded, because their scale or their "
        "smallest number does not fit into 16 bits; expected finite numbers "
        "up to 65,504",
    ),
    # compiled
    (
        lambda: compile_steps(gpt().train()),
        ValueError,
        "the steps of a model in training cannot be compiled, because dropout "
        "is not for writing; expected model.eval(); got a model in training "
        "mode",
    ),
    (
        lambda: compile_steps(pack(gpt())),
        ValueError,
        "the steps of a packed model cannot be compiled, because the compiler "
        "does not know oneDNN's layout; expected the model before pack; got "
        "one with packed matrices",
    ),
    # state, hybrid
    (
        lambda: in_chunks(X, X, X, X[:, 0], X[:, 0], size=0),
        ValueError,
        "size is not allowed; expected a whole number, at least 1; got 0",
    ),
    (
        lambda: in_chunks(X, X, X, X[:, 0], FIVE[:, 0, 0]),
        ValueError,
        "T is both 3 and 5; expected q (..., T, d_k), k (..., T, d_k), v "
        "(..., T, d_v), beta (..., T), log_alpha (..., T); got q (3, 8), k "
        "(3, 8), v (3, 8), beta (3,), log_alpha (5,)",
    ),
    (
        lambda: StateLayer(8, 2, taps=0),
        ValueError,
        "taps is not allowed; expected a whole number, at least 1; got 0",
    ),
    (
        lambda: StateGPT(GPTConfig(**SIZES), every=-1),
        ValueError,
        "every is not allowed; expected a whole number, at least 0; got -1",
    ),
    (
        lambda: StateGPT(GPTConfig(**SIZES, n_kv_heads=1)),
        ValueError,
        "a model with states has heads of one kind; expected no n_kv_heads "
        "and no d_head; got 1 and None",
    ),
    (
        lambda: states()[1].trim(1),
        ValueError,
        "a state cannot go back, since what each token wrote is mixed with "
        "all the rest; expected 0, to forget all, or a copy that was made "
        "before; got 1",
    ),
    (
        lambda: states()[0](PAIR, cache=states()[1]),
        TypeError,
        "the state records gradients, which a cache cannot keep; expected a "
        "call under torch.inference_mode() or torch.no_grad(); got "
        "requires_grad=True",
    ),
    (
        with_a_plain_cache,
        TypeError,
        "a layer with a state was given a cache without states; expected a "
        "StateCache; got a KVCache",
    ),
    # lora, answers, reward
    (
        lambda: LoRALinear(torch.nn.Linear(4, 3), 4, 1),
        ValueError,
        "rank is not allowed; expected a whole number, at least 1, at most 3; "
        "got 4",
    ),
    (
        lambda: LoRALinear(torch.nn.Linear(4, 3), 3, 0),
        ValueError,
        "alpha is not allowed; expected a finite number, above 0; got 0",
    ),
    (
        lambda: add_lora(gpt(), 9, 1),
        ValueError,
        "rank is not allowed; expected a whole number, at least 1, at most 8; "
        "got 9",
    ),
    (
        lambda: add_lora(gpt(), 1, -1),
        ValueError,
        "alpha is not allowed; expected a finite number, above 0; got -1",
    ),
    (
        lambda: add_lora(gpt(), 1, 1, layers=["q_proj"]),
        ValueError,
        "no linear layer of the model has one of the names in `layers`, so "
        "nothing would be trained; expected some of ['down', 'key_value', "
        "'out', 'query', 'up']; got ['q_proj']",
    ),
    (
        with_two_adapters,
        ValueError,
        "the layer 'blocks.0.attention.query' has an adapter already, and a "
        "second one would hide it; expected a model without adapters: call "
        "merge_lora first",
    ),
    (
        lambda: answer_batch([[1]], [[2], [3]]),
        ValueError,
        "each prompt has one answer here; repeat a prompt that has several; "
        "got 1 prompts and 2 answers",
    ),
    (
        lambda: answer_batch([], []),
        ValueError,
        "number of prompts is not allowed; expected a whole number, at least "
        "1; got 0",
    ),
    (
        lambda: answer_batch([[]], [[2]]),
        ValueError,
        "length of a prompt is not allowed; expected a whole number, at least "
        "1; got 0",
    ),
    (
        lambda: answer_batch([[1]], [[]]),
        ValueError,
        "length of an answer is not allowed; expected a whole number, at "
        "least 1; got 0",
    ),
    (
        lambda: preference_loss(Q, Q, Q, Q, 0),
        ValueError,
        "beta is not allowed; expected a finite number, above 0; got 0",
    ),
    (
        lambda: best_law(Q, Q, 0.0),
        ValueError,
        "beta is not allowed; expected a finite number, above 0; got 0.0",
    ),
    (
        lambda: best_law_forward(Q[0], Q[0], -1),
        ValueError,
        "beta is not allowed; expected a finite number, above 0; got -1.0",
    ),
    (
        lambda: advantages(Q, "std"),
        ValueError,
        "baseline is not allowed; expected one of none, mean, others, "
        "deviation; got 'std'",
    ),
    (
        lambda: advantages(ones(3, 1)),
        ValueError,
        "answers in a group is not allowed; expected a whole number, at least "
        "2; got 1",
    ),
    (
        lambda: clipped_gain(Q, Q, low=1.0),
        ValueError,
        "low is not allowed; expected a finite number, above 0, below 1; got "
        "1.0",
    ),
    (
        lambda: clipped_gain(Q, Q, high=0),
        ValueError,
        "high is not allowed; expected a finite number, above 0; got 0",
    ),
    # latent
    (
        lambda: LatentAttention(8, 2, d_latent=0, d_rotary=2),
        ValueError,
        "d_latent is not allowed; expected a whole number, at least 1; got 0",
    ),
    (
        lambda: LatentAttention(8, 2, d_latent=4, d_rotary=3)(X),
        ValueError,
        "width is odd, but components are turned in pairs; expected an even "
        "number; got 3",
    ),
    (
        lambda: use_latent(gpt(), d_latent=4, d_rotary=2),
        ValueError,
        "latent attention rotates a part of its keys, so the model's "
        "positions must be rotary; expected 'rotary'; got 'learned'",
    ),
    # pooling
    (
        lambda: pool_heads(gpt(), 3),
        ValueError,
        "n_heads cannot share n_kv_heads evenly; expected a multiple; got "
        "n_heads 2 and n_kv_heads 3",
    ),
    # window
    (
        lambda: sink_mask(3, window=2, sinks=-1),
        ValueError,
        "sinks is not allowed; expected a whole number, at least 0; got -1",
    ),
    (
        lambda: read_window(gpt(), ones(1, 3).long(), window=2),
        ValueError,
        "this model cannot read a text through a window, because its "
        "positions end or need a bias; expected rotary, sinusoidal, none; "
        "got 'learned'",
    ),
    (
        lambda: read_window(gpt(), ones(1, 3), window=2),
        TypeError,
        "tokens is of the wrong type; expected a tensor of integers; got one "
        "of torch.float32",
    ),
    # families
    (
        lambda: config_of({"model_type": "t5"}),
        ValueError,
        "the model_type is not one that this book can load; expected one of "
        "gpt2, llama, mistral, qwen2, qwen3, bert; got 't5'",
    ),
    (
        lambda: config_of(GPT2 | {"activation_function": "mish"}),
        ValueError,
        "activation_function means a model which our class cannot be; "
        "expected one of gelu_new, gelu, relu; got 'mish'",
    ),
    (
        lambda: config_of(GPT2 | {"scale_attn_weights": False}),
        ValueError,
        "scale_attn_weights means a model which our class cannot be; "
        "expected True; got False",
    ),
    (
        lambda: config_of(GPT2 | {"add_cross_attention": True}),
        ValueError,
        "add_cross_attention means a model which our class cannot be; "
        "expected False, null or no such field; got True",
    ),
    (
        lambda: config_of(without(GPT2, "n_layer")),
        ValueError,
        "a size is missing; expected a whole number under n_layer or "
        "num_hidden_layers; got no such field",
    ),
    (
        lambda: config_of(GPT2 | {"hidden_size": 9}),
        ValueError,
        "n_embd and hidden_size are names of the same size; expected one "
        "number; got 8 and 9",
    ),
    (
        lambda: config_of(GPT2 | {"n_layer": 2**31}),
        ValueError,
        "n_layer is not allowed; expected a whole number, at least 1, at "
        "most 2147483647; got 2147483648",
    ),
    (
        lambda: config_of(BERT | {"position_embedding_type": "relative_key"}),
        ValueError,
        "position_embedding_type means a model which our class cannot be; "
        "expected 'absolute' or no such field; got 'relative_key'",
    ),
    (
        lambda: config_of(MISTRAL | {"max_position_embeddings": 5000}),
        ValueError,
        "a token of this model sees only the last tokens, and our class has "
        "no such window; expected no sliding_window, or one of more than the "
        "context, 5000; got 4096",
    ),
    (
        lambda: config_of(MISTRAL | {"sliding_window": 2.5}),
        TypeError,
        "sliding_window is of the wrong type; expected a whole number, at "
        "least 1; got 2.5",
    ),
    (
        lambda: config_of(LLAMA | {"attention_bias": True}),
        ValueError,
        "attention_bias and mlp_bias differ, and our class has biases in "
        "both places or in neither; expected the same for both; got True and "
        "False",
    ),
    (
        lambda: config_of(LLAMA | {"head_dim": 5}),
        ValueError,
        "heads whose width is odd cannot be rotated; expected an even "
        "head_dim, or hidden_size / num_attention_heads; got 5",
    ),
    (
        lambda: config_of(LLAMA | {"model_type": "mixtral"}),
        ValueError,
        "this model has experts, which our classes have not; expected a "
        "model_type of gpt2, llama, mistral, qwen2, qwen3, bert; got "
        "'mixtral'",
    ),
    (
        lambda: config_of(LLAMA | {"rope_scaling": [1]}),
        ValueError,
        "rope_parameters and rope_scaling cannot be read; expected one "
        "table, in either place or the same in both; got [1]",
    ),
    (
        lambda: config_of(LLAMA | {"rope_scaling": {"type": "linear"}}),
        ValueError,
        "type asks for a rotation that our class does not have; expected "
        "'default'; got 'linear'",
    ),
    (
        lambda: config_of(LLAMA | {"rope_scaling": {"beta_fast": 32}}),
        ValueError,
        "beta_fast asks for a rotation that our class does not have; "
        "expected no such field; got 32",
    ),
]

ROWS_ON_DISK = [
    # files
    (
        lambda folder: files.locate(""),
        FileNotFoundError,
        "this is no path; expected that of a file or a folder; got ''",
    ),
    (
        lambda folder: files.write(folder / "no" / "m", {}, {}),
        OSError,
        "FOLDER/no/m cannot be written; expected a folder that has room and "
        "may be written to; got: …",
    ),
    (
        lambda folder: files.read(folder / "none"),
        FileNotFoundError,
        "there is no file FOLDER/none; expected a whole safetensors file; "
        "got none",
    ),
    (
        lambda folder: files.read(put(folder / "m", b"text")),
        ValueError,
        "FOLDER/m is cut off, damaged or of something else; expected a whole "
        "safetensors file; got …",
    ),
    (
        lambda folder: files.read(put(folder / "m", weights()[:-5])),
        ValueError,
        "FOLDER/m is cut off, damaged or of something else; expected a whole "
        "safetensors file; got 71 bytes of 76: x (3,) is the first tensor "
        "that is not whole",
    ),
    (
        lambda folder: files.read_json(put(folder / "c", b"[1]")),
        ValueError,
        "FOLDER/c is cut off, damaged or of something else; expected a JSON "
        "object; got a list",
    ),
    (
        lambda folder: files.read_json(put(folder / "c", TOO_LONG)),
        ValueError,
        "FOLDER/c is cut off, damaged or of something else; expected a JSON "
        "object; got more than 33554432 bytes",
    ),
    (
        lambda folder: read_weights(folder),
        FileNotFoundError,
        "there are no weights in FOLDER; expected model.safetensors or "
        "model.safetensors.index.json; got neither",
    ),
    (
        lambda folder: read_weights(with_file(folder, "pytorch_model.bin")),
        ValueError,
        "FOLDER holds its weights as a pickle, which can run any program "
        "when it is read; expected model.safetensors; got pytorch_model.bin. "
        "If you trust it, convert it there, once: "
        "safetensors.torch.save_file({n: t.clone() for n, t in "
        'torch.load("pytorch_model.bin", weights_only=True).items()}, '
        '"model.safetensors")',
    ),
    (
        lambda folder: read_weights(sharded(folder, x="../x.safetensors")),
        ValueError,
        "FOLDER/model.safetensors.index.json is cut off, damaged or of "
        "something else; expected a weight_map of .safetensors files beside "
        "it; got '../x.safetensors' for 'x'",
    ),
    (
        lambda folder: read_weights(sharded(folder, y="part.safetensors")),
        ValueError,
        "FOLDER/model.safetensors.index.json and part.safetensors differ; "
        "expected the same tensors in both; got 'x' in one alone",
    ),
    # pretrained
    (
        lambda folder: load("no/such model"),
        FileNotFoundError,
        "there is no model no/such model; expected a folder of that name, a "
        "GGUF file, a copy of the hub's on this machine, or the hub to "
        "answer; got …. Where there is a network, `hf "
        "download no/such model` makes a copy",
    ),
    (
        lambda folder: load(published(folder, settings={"model_type": "t5"})),
        ValueError,
        "FOLDER/config.json: the model_type is not one that this book can "
        "load; expected one of gpt2, llama, mistral, qwen2, qwen3, bert; got "
        "'t5'",
    ),
    (
        lambda folder: load(published(folder, settings={"n_layer": 99})),
        ValueError,
        "FOLDER/model.safetensors cannot hold the model that is described "
        "beside it, with n_layers 99; expected 86496 numbers, in at least "
        "594 tensors; got 16 tensors",
    ),
    (
        lambda folder: load(published(folder, lost="h.0.ln_1.bias")),
        ValueError,
        "FOLDER/model.safetensors lacks 1 of 16 tensors; expected "
        "h.0.ln_1.bias (8,), for blocks.0.attention_norm.bias; got no other "
        "tensor of that shape",
    ),
    (
        lambda folder: load(published(folder, renamed="h.0.ln_1.bias")),
        ValueError,
        "FOLDER/model.safetensors lacks 1 of 16 tensors; expected "
        "h.0.ln_1.bias (8,), for blocks.0.attention_norm.bias; got "
        "h.0.ln_1.biases of that shape, perhaps renamed from it",
    ),
    (
        lambda folder: load(published(folder, more={"h.9.x": ones(1)})),
        ValueError,
        "FOLDER/model.safetensors holds more than this model; expected its "
        "16 tensors; got h.9.x too",
    ),
    (
        lambda folder: load(published(folder, more={TABLE: ones(3, 8)})),
        ValueError,
        "wpe.weight in FOLDER/model.safetensors has the wrong shape; "
        "expected (8, 8), for position_embedding.weight; got (3, 8)",
    ),
    (
        lambda folder: load(published(folder, more={MATRIX: ones(32, 8)})),
        ValueError,
        "h.0.mlp.c_fc.weight in FOLDER/model.safetensors has the wrong "
        "shape; expected (8, 32), for blocks.0.feed_forward.up.weight; got "
        "(32, 8), as in a Linear and not in a Conv1D",
    ),
    (
        lambda folder: load(published(folder, more={BIAS: ones(8).half()})),
        ValueError,
        "FOLDER/model.safetensors holds numbers of the wrong type; expected "
        "all of one type, and floats of 16 bits or more; got torch.float32 "
        "in wte.weight, torch.float16 in ln_f.bias",
    ),
    (
        lambda folder: load(published(folder, more={BIAS: ones(8) / 0})),
        ValueError,
        "FOLDER/model.safetensors is damaged; expected numbers for "
        "norm.bias; got NaN or infinity among them",
    ),
    (
        lambda folder: load(published(folder, more={HEAD: ones(11, 8) / 2})),
        ValueError,
        "FOLDER/model.safetensors has a head of its own; expected "
        "lm_head.weight equal to the embedding, as tie_word_embeddings says; "
        "got another",
    ),
    (
        lambda folder: rename({}, gpt(), "t5"),
        ValueError,
        "there is no such family of models; expected one of gpt2, llama, "
        "mistral, qwen2, qwen3, bert; got 't5'",
    ),
    (
        lambda folder: load(put(folder / "m.gguf", EMPTY_GGUF)),
        ValueError,
        "FOLDER/m.gguf: the file is of architecture None; this book reads "
        "'llama' from GGUF files, and others from a folder with config.json "
        "and safetensors",
    ),
    (
        lambda folder: load_tokenizer(put(folder / "m.gguf", EMPTY_GGUF)),
        ValueError,
        "FOLDER/m.gguf: the file has a tokenizer of kind None that cuts "
        "texts as None does; this book reads byte pairs, 'gpt2', cut as one "
        "of gpt-2, smollm",
    ),
    (
        lambda folder: load_tokenizer(with_file(folder, "tokenizer.json")),
        ValueError,
        "FOLDER/tokenizer.json is no tokenizer that `tokenizers` can read: …",
    ),
    (
        lambda folder: load_model(saved(folder, ["a"])),
        ValueError,
        "FOLDER/model is cut off, damaged or of something else; expected a "
        "GPTConfig and a vocabulary of its size; got 1 words for 11",
    ),
]
#: Raises that no call reaches in this environment, and why.
NOT_REACHED = {
    'raise ImportError("imported for a card; set TRITON_INTERPRET=1 first")': (
        "it is in the import of kernel; its own test starts another process"
    ),
}
ROOMS = (
    "answers",
    "attention",
    "config",
    "families",
    "compiled",
    "fast",
    "feed_forward",
    "files",
    "gpt",
    "gptq",
    "hybrid",
    "kernel",
    "latent",
    "layers",
    "lora",
    "masks",
    "merging",
    "norms",
    "pooling",
    "positions",
    "pretrained",
    "quantised",
    "reward",
    "rounded_cache",
    "shapes",
    "state",
    "values",
    "window",
)
CHECKS = ("whole", "number", "one_of", "check_sizes")


def label(row):
    return f"{row[0].__code__.co_firstlineno}"


def said(call, error, folder=None):
    """The message of the error that a call raises, and the error itself."""
    with pytest.raises(error) as caught:
        call() if folder is None else call(folder)
    assert caught.type is error
    message = str(caught.value)
    if folder is not None:
        message = message.replace(str(folder), "FOLDER")
    return message, caught.value


def fits(message, sentence):
    parts = map(re.escape, sentence.split("…"))
    return re.fullmatch(".*".join(parts), message, re.DOTALL)


@pytest.mark.parametrize("row", ROWS, ids=label)
def test_a_refusal_is_this_sentence(row):
    call, error, sentence = row
    message, _ = said(call, error)
    assert message == sentence


@pytest.mark.parametrize("row", ROWS_ON_DISK, ids=label)
def test_a_refusal_of_files_is_this_sentence(row, tmp_path, monkeypatch):
    monkeypatch.setenv("ATTNBOOK_OFFLINE", "1")
    call, error, sentence = row
    message, _ = said(call, error, tmp_path)
    assert fits(message, sentence), message


def places(room):
    """Where a room refuses something, and the text that is there."""
    text = (HOUSE / f"{room}.py").read_text("utf-8")
    lines = text.splitlines()
    found = {}
    for node in ast.walk(ast.parse(text)):
        raises = isinstance(node, ast.Raise) and node.exc is not None
        checks = (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in CHECKS
        )
        if raises or checks:
            # A call of several lines is at work in any of them.
            span = range(node.lineno, node.end_lineno + 1)
            found[span] = lines[node.lineno - 1].strip()
    return found


def test_every_refusal_has_its_row(tmp_path, monkeypatch):
    monkeypatch.setenv("ATTNBOOK_OFFLINE", "1")
    met = set()
    for number_of_row, (call, error, _) in enumerate(ROWS + ROWS_ON_DISK):
        folder = None
        if number_of_row >= len(ROWS):
            folder = tmp_path / str(number_of_row)
            folder.mkdir()
        _, caught = said(call, error, folder)
        while caught is not None:
            for frame in traceback.extract_tb(caught.__traceback__):
                met.add((Path(frame.filename).name, frame.lineno))
            caught = caught.__cause__ or caught.__context__
    missing = [
        f"{room}.py, line {span.start}: {text}"
        for room in ROOMS
        for span, text in places(room).items()
        if text not in NOT_REACHED
        and not any((f"{room}.py", line) in met for line in span)
    ]
    assert missing == []
