"""Small GGUF files, written by the format's own package."""

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Kind

from attnbook.byte_pairs import byte_letters

SIZES = dict(layers=2, width=64, heads=4, kv_heads=2, d_ff=96, context=256)
KINDS = (Kind.F32, Kind.F16, Kind.Q8_0, Kind.Q4_0, Kind.Q4_1)


def tokens_and_merges():
    """A tokenizer that is small: two control tokens, bytes, two merges."""
    tokens = [
        "<|im_end|>",
        "<|im_start|>",
        *byte_letters(),
        "he",
        "Ġthe",
        "Ġt",
    ]
    merges = ["h e", "Ġ t", "Ġt he"]
    return tokens, merges


def interleaved(weight, heads):
    """Rows of queries or keys as llama.cpp's converter puts them: written
    out row by row, and not as the book's reader puts them back."""
    d = len(weight) // heads
    rows = []
    for head in range(heads):
        for i in range(d // 2):
            rows += [head * d + i, head * d + d // 2 + i]
    return weight[rows]


def weights(rng, n_tokens, *, tied=True):
    """Numbers of a small Llama, by transformers' names."""
    s = SIZES
    kv = s["width"] // s["heads"] * s["kv_heads"]
    shapes = {"model.embed_tokens": (n_tokens, s["width"])}
    for n in range(s["layers"]):
        shapes |= {
            f"model.layers.{n}.{name}": shape
            for name, shape in {
                "input_layernorm": (s["width"],),
                "self_attn.q_proj": (s["width"], s["width"]),
                "self_attn.k_proj": (kv, s["width"]),
                "self_attn.v_proj": (kv, s["width"]),
                "self_attn.o_proj": (s["width"], s["width"]),
                "post_attention_layernorm": (s["width"],),
                "mlp.gate_proj": (s["d_ff"], s["width"]),
                "mlp.up_proj": (s["d_ff"], s["width"]),
                "mlp.down_proj": (s["width"], s["d_ff"]),
            }.items()
        }
    shapes["model.norm"] = (s["width"],)
    if not tied:
        shapes["lm_head"] = (n_tokens, s["width"])
    found = {}
    for name, shape in shapes.items():
        numbers = rng.normal(0, 0.3, shape).astype(np.float32)
        found[f"{name}.weight"] = numbers + (len(shape) == 1)
    return found


def their_name(name):
    """What llama.cpp calls a tensor of a Llama checkpoint."""
    parts = {
        "model.embed_tokens": "token_embd",
        "model.norm": "output_norm",
        "lm_head": "output",
        "input_layernorm": "attn_norm",
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "post_attention_layernorm": "ffn_norm",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
    }
    part = name.removesuffix(".weight")
    if part.startswith("model.layers."):
        _, _, n, part = part.split(".", 3)
        return f"blk.{n}.{parts[part]}.weight"
    return f"{parts[part]}.weight"


def write(
    path, *, seed=0, kind=Kind.F32, tied=True, change=None, tokenizer=True
):
    """A small Llama in a file; the numbers it was made of, by transformers'
    names. `change` is called with the writer before anything is written."""
    s = SIZES
    tokens, merges = tokens_and_merges()
    numbers = weights(np.random.default_rng(seed), len(tokens), tied=tied)
    out = gguf.GGUFWriter(path, "llama")
    out.add_block_count(s["layers"])
    out.add_context_length(s["context"])
    out.add_embedding_length(s["width"])
    out.add_feed_forward_length(s["d_ff"])
    out.add_head_count(s["heads"])
    out.add_head_count_kv(s["kv_heads"])
    out.add_layer_norm_rms_eps(1e-5)
    out.add_rope_freq_base(1000.0)
    out.add_rope_dimension_count(s["width"] // s["heads"])
    if tokenizer:
        out.add_tokenizer_model("gpt2")
        out.add_tokenizer_pre("smollm")
        out.add_token_list(tokens)
        out.add_token_types([3, 3] + [1] * (len(tokens) - 2))
        out.add_token_merges(merges)
        out.add_bos_token_id(1)
        out.add_eos_token_id(0)
    for name, tensor in numbers.items():
        heads = {"q_proj": s["heads"], "k_proj": s["kv_heads"]}
        for part, n in heads.items():
            if part in name:
                tensor = interleaved(tensor, n)
        if tensor.ndim == 1 or kind == Kind.F32:
            out.add_tensor(their_name(name), tensor)
        else:
            packed = gguf.quantize(tensor, kind)
            out.add_tensor(their_name(name), packed, raw_dtype=kind)
    if change is not None:
        change(out)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()
    return numbers
