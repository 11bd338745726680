"""Configurations of others: read as what they mean, or refused by name."""

import pytest
import theirs
import torch
from transformers import Qwen3Config

from attnbook.families import OTHERS, config_of
from attnbook.pretrained import load
from attnbook.teach.check.proof import agrees

SMALL = {
    name: {"model_type": name, "vocab_size": theirs.VOCABULARY} | sizes
    for name, sizes in theirs.SMALL.items()
}
DEFAULT = {"type": "default"}
LLAMA3 = {"rope_type": "llama3", "factor": 3.0, "low_freq_factor": 1.0}
LLAMA3 |= {"high_freq_factor": 4.0, "original_max_position_embeddings": 30}
LINEAR = {"rope_theta": 5e5, "rope_type": "linear", "factor": 2.0}

#: A family, what is changed, and what the message must name.
REFUSED = [
    ("gpt2", {"model_type": "t5"}, "model_type"),
    ("gpt2", {"model_type": []}, "model_type"),
    ("gpt2", {"scale_attn_weights": False}, "scale_attn_weights"),
    ("gpt2", {"add_cross_attention": True}, "add_cross_attention"),
    ("gpt2", {"is_causal": False}, "is_causal"),
    ("gpt2", {"pruned_heads": {"0": [1]}}, "pruned_heads"),
    ("gpt2", {"activation_function": "mish"}, "activation_function"),
    ("gpt2", {"activation_function": []}, "activation_function"),
    ("gpt2", {"layer_norm_epsilon": "1e-5"}, "norm_eps"),
    ("gpt2", {"tie_word_embeddings": "no"}, "tied"),
    ("gpt2", {"num_attention_heads": 2}, "n_head and num_attention_heads"),
    ("gpt2", {"hidden_size": 48}, "n_embd and hidden_size"),
    ("gpt2", {"max_position_embeddings": 9}, "n_positions and max_position"),
    ("gpt2", {"n_layer": 2**63}, "n_layer"),
    ("gpt2", {"n_inner": True}, "n_inner"),
    ("llama", {"sliding_window": 8}, "sliding_window"),
    ("llama", {"layer_types": ["chunked_attention"] * 2}, "layer_types"),
    ("llama", {"attention_chunk_size": 8}, "attention_chunk_size"),
    ("llama", {"quantization_config": {"bits": 4}}, "quantization_config"),
    ("llama", {"hidden_act": "gelu"}, "hidden_act"),
    ("llama", {"attention_bias": True}, "mlp_bias"),
    ("llama", {"attention_bias": "no", "mlp_bias": "no"}, "bias"),
    ("llama", {"head_dim": 7}, "an even head_dim"),
    ("llama", {"hidden_size": 12}, "an even head_dim"),
    ("llama", {"head_dim": 0}, "head_dim"),
    ("qwen3", {"use_sliding_window": True, "sliding_window": 9}, "sliding_w"),
    ("qwen3", {"layer_types": ["sliding_attention"] * 2}, "layer_types"),
    *(
        ("llama", {"model_type": other}, "our classes have not")
        for other in OTHERS
    ),
    ("llama", {"vocab_size": None}, "vocab_size"),
    ("llama", {"intermediate_size": 0}, "intermediate_size"),
    ("llama", {"rope_parameters": LINEAR}, "rope_type"),
    ("llama", {"rope_parameters": {"rope_type": [1]}}, "rope_type"),
    ("llama", {"rope_parameters": [1]}, "rope_parameters"),
    ("llama", {"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "type"),
    ("llama", {"rope_scaling": {"factor": 4.0}}, "factor"),
    ("llama", {"rope_scaling": LLAMA3 | {"factor": None}}, "rotary_scaling"),
    ("llama", {"rope_scaling": LLAMA3 | {"low_freq_factor": 9}}, "high"),
    ("llama", {"rope_scaling": LLAMA3 | {"beta_fast": 9}}, "beta_fast"),
    ("mistral", {"max_position_embeddings": 5000}, "sliding_window"),
    ("qwen2", {"use_sliding_window": True, "sliding_window": 9}, "sliding_w"),
    # Transformers' Mistral slides whatever the second field says.
    (
        "mistral",
        {"use_sliding_window": False, "sliding_window": 9},
        "sliding_window.*context, 64.*got 9",
    ),
    ("mistral", {"sliding_window": 64}, "sliding_window.*got 64"),
    ("mistral", {"sliding_window": 0}, "sliding_window.*got 0"),
    ("qwen2", {"use_sliding_window": True, "sliding_window": 64}, "got 64"),
    ("qwen2", {"layer_types": ["sliding_attention"] * 2}, "layer_types"),
    ("llama", {"rope_scaling": {"partial_rotary_factor": 0.5}}, "partial_rot"),
    ("llama", {"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
    ("llama", {"rope_parameters": {"rope_theta": 0.5}}, "rotary_base"),
    (
        "llama",
        {"rope_parameters": LINEAR, "rope_scaling": DEFAULT},
        "rope_parameters and rope_scaling",
    ),
]


@pytest.mark.parametrize("name, changes, words", REFUSED)
def test_what_our_class_cannot_be_is_refused(name, changes, words):
    config_of(SMALL[name])  # as it is it can
    with pytest.raises((ValueError, TypeError), match=words) as caught:
        config_of(SMALL[name] | changes)
    for part in ("expected", "got"):
        assert part in str(caught.value)


@pytest.mark.parametrize(
    "changes, base",
    [
        ({}, 1e4),
        ({"rope_theta": 7e5}, 7e5),  # as of old
        ({"rope_parameters": None, "rope_scaling": None}, 1e4),
        ({"rope_parameters": {"rope_theta": 3e5}}, 3e5),
        ({"rope_parameters": {"partial_rotary_factor": 1.0}}, 1e4),
        ({"rope_scaling": DEFAULT, "rope_theta": 9}, 9.0),
        ({"rope_scaling": DEFAULT, "rope_parameters": DEFAULT}, 1e4),
    ],
)
def test_the_base_wherever_it_stands(changes, base):
    assert config_of(SMALL["llama"] | changes).rotary_base == base


def test_null_is_no_and_two_names_that_agree_are_one():
    names = ("add_cross_attention", "pruned_heads", "n_inner", "layer_types")
    twice = {"hidden_size": 24, "num_hidden_layers": 2}
    config = SMALL["gpt2"] | dict.fromkeys(names) | twice
    before = dict(config)
    assert config_of(config) == config_of(SMALL["gpt2"])
    assert config == before


@pytest.mark.parametrize("name", SMALL)
def test_what_a_file_does_not_say_is_their_default(name):
    full = theirs.their_config(name).to_dict()
    assert config_of(SMALL[name]) == config_of(full)
    assert full.keys() > SMALL[name].keys()


def test_a_window_that_hides_nothing_is_read_over():
    """Longer than the context, or of a Qwen2 that does not use it."""
    for name, changes in (
        ("mistral", {"sliding_window": 65}),
        ("mistral", {"sliding_window": None}),
        ("qwen2", {"use_sliding_window": False, "sliding_window": 9}),
        ("qwen2", {"sliding_window": 9}),
    ):
        assert config_of(SMALL[name] | changes) == config_of(SMALL[name])


def test_llamas_scaling_stretches_the_files_context_unless_it_names_another():
    """As transformers reads it."""
    without = {k: v for k, v in LLAMA3.items() if not k.startswith("original")}
    for scaling, length in ((LLAMA3, 30), (without, 64)):
        found = config_of(SMALL["llama"] | {"rope_scaling": scaling})
        assert found.rotary_scaling == (3.0, 1.0, 4.0, length)


@pytest.mark.parametrize("rope", [LLAMA3, DEFAULT])
@pytest.mark.parametrize("name", ["llama", "mistral", "qwen2", "qwen3"])
@torch.no_grad()
def test_a_row_of_the_table_is_transformers_model(tmp_path, name, rope):
    changes = dict(rope_parameters=rope | {"rope_theta": 90.0})
    model = theirs.their_model(name, rms_norm_eps=0.1, **changes)
    model.save_pretrained(tmp_path)
    ours = load(tmp_path)
    tokens = theirs.tokens_of(2, 24)
    assert ours.config.parameter_count() == model.num_parameters()
    agrees(ours(tokens), model(tokens).logits, name="theirs", within=1e-4)


def test_a_head_has_its_own_width_or_its_familys_or_a_share():
    """Qwen3's is 128 where the file does not say it, as in transformers."""
    small = {k: v for k, v in SMALL["qwen3"].items() if k != "head_dim"}
    assert config_of(small).head_width() == 128
    assert config_of(small | {"head_dim": 10}).head_width() == 10
    assert Qwen3Config().head_dim == 128
    share = config_of(SMALL["llama"])
    assert share.d_head is None and share.head_width() == 6
