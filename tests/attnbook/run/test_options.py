"""The options of the command that trains: one for each field, explained."""

from dataclasses import fields

import pytest

from attnbook.gpt import GPTConfig
from attnbook.run.options import (
    DEFAULTS,
    TEXT_CONFIG,
    TEXT_RECIPE,
    chosen,
    training_parser,
)
from attnbook.training import Recipe

FIELDS = [
    (given, field)
    for given in (TEXT_CONFIG, TEXT_RECIPE)
    for field in fields(given)
    if field.name not in ("vocab_size", "warmup")
]


@pytest.mark.parametrize(
    "given, field", FIELDS, ids=[field.name for _, field in FIELDS]
)
def test_each_field_is_an_option_with_its_help_and_its_default(given, field):
    parser = training_parser()
    options = parser.parse_args(["a text"])
    assert getattr(options, field.name) == getattr(given, field.name)
    told = " ".join(parser.format_help().split())
    assert f"--{field.name.replace('_', '-')}" in told
    assert " ".join(field.metadata["help"].split()) in told
    assert DEFAULTS.get(field.name, "") in told


def test_what_is_chosen_becomes_a_config_and_a_recipe():
    words = "text --d-model 32 --n-heads 2 --no-bias --steps 7 --warmup 1"
    options = training_parser().parse_args(words.split())
    options.vocab_size = 5
    config = chosen(options, GPTConfig)
    assert (config.d_model, config.n_heads, config.bias) == (32, 2, False)
    assert (config.vocab_size, config.context) == (5, TEXT_CONFIG.context)
    assert chosen(options, Recipe).steps == 7


def test_what_is_typed_wrong_is_said_in_one_line(capsys):
    with pytest.raises(SystemExit) as ended:
        training_parser().parse_args(["text", "--steps", "many"])
    assert ended.value.code == 2
    [line] = capsys.readouterr().err.splitlines()
    assert "--steps" in line and "'many'" in line
