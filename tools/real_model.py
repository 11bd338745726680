"""Load a published GPT-2 and hold it against transformers.

Text, first logits, and the loss on a paragraph must be the same; what was
found is stored for chapter 16, with the date and the file's hash.

usage: python tools/real_model.py [MODEL] [FILE]    MODEL: gpt2, or a folder
"""

from __future__ import annotations

import hashlib
import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from urllib.request import urlopen

import torch
from huggingface_hub import hf_hub_download
from huggingface_hub.constants import ENDPOINT
from notebooks import ROOT, write_text
from transformers import AutoTokenizer, GPT2LMHeadModel

from attnbook.families import REVISIONS
from attnbook.generate import complete
from attnbook.gpt import GPT
from attnbook.pretrained import load
from attnbook.training import loss_share

FILE = ROOT / "chapters/attnbook/data/real_model.json"
FILES = "config.json", "vocab.json", "merges.txt", "model.safetensors"
PROMPT = "The boat left the river"
PARAGRAPH = (
    "Attention is a weighted average whose weights are computed. Each word "
    "asks a question, every earlier word offers an answer, and what the word "
    "takes away is a mixture of the answers that fit. A model that writes is "
    "a stack of such averages, and it learns its weights by guessing, again "
    "and again, which word comes next."
)
BOUND = 1e-2  # for the difference of logits near −100, in float32


def fetched(name: str) -> Path:
    """The folder of a model's files.

    Args:
        name: the path of a folder, or the name of a GPT-2 on the hub, which is
            fetched unless there is a copy on this machine.

    Raises:
        SystemExit: there is no such folder or copy, and the hub does not
            answer.
    """
    if Path(name).is_dir():
        return Path(name)
    for here in (True, False):
        try:
            if not here:  # the hub's own client would try for a minute
                urlopen(ENDPOINT, timeout=5).close()
            for file in FILES:
                found = hf_hub_download(
                    f"openai-community/{name}",
                    file,
                    revision=REVISIONS[name],
                    local_files_only=here,
                )
            return Path(found).parent
        except Exception as error:  # a network fails in many ways
            got = type(error).__name__
    raise SystemExit(
        f"{name} was not fetched, and nothing was changed; expected the hub "
        f"to answer, or a copy or a folder here; got {got}"
    )


@torch.no_grad()
def compared(folder: Path) -> dict:
    """What the book's model and that of transformers make of the same text.

    Args:
        folder: the files of the model, which both load.

    Returns:
        what is stored for chapter 16.

    Raises:
        SystemExit: the two models differ.
    """
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ours = load(folder)
    assert isinstance(ours, GPT), "a GPT-2 writes"
    theirs = GPT2LMHeadModel.from_pretrained(folder).eval()
    prompt = tokenizer(PROMPT, return_tensors="pt")["input_ids"]  # (1, T)
    tokens = tokenizer(PARAGRAPH, return_tensors="pt")["input_ids"]
    logits = ours(tokens)
    expected = theirs(tokens).logits  # (1, T, V)
    gap = (logits - expected).abs().max().item()
    loss = loss_share(ours, tokens[:, :-1], tokens[:, 1:]).item()
    their_loss = theirs(tokens, labels=tokens).loss.item()
    new = complete(ours, prompt.tolist(), 20)[0]
    their_new = theirs.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        max_new_tokens=20,
        do_sample=False,
        pad_token_id=0,
        eos_token_id=None,
    )[0]
    same = new == their_new[prompt.shape[1] :].tolist()
    if not (gap < BOUND and abs(loss - their_loss) < 1e-4 and same):
        raise SystemExit(
            "the two models differ, and nothing was stored; expected equal "
            f"text, loss {their_loss:.5f}; got a loss of {loss:.5f}, logits "
            f"{gap:.1e} apart, and {'equal' if same else 'another'} text"
        )
    return {
        "prompt": PROMPT,
        "text": tokenizer.decode(new),
        "logits": [round(n, 3) for n in logits[0, -1, :5].tolist()],
        "paragraph": PARAGRAPH,
        "tokens": tokens.numel(),
        "loss": round(loss, 4),
        "their_loss": round(their_loss, 4),
    }


def main(name: str = "gpt2", file: str | Path = FILE) -> None:
    """Compare the models, and store the result in a file."""
    folder = fetched(name)
    weights = (folder / "model.safetensors").read_bytes()
    found = {
        "model": Path(name).name,
        "date": datetime.now(UTC).date().isoformat(),
        "sha256": hashlib.sha256(weights).hexdigest(),
    } | compared(folder)
    write_text(Path(file), json.dumps(found, indent=1) + "\n")
    print(f"{found['prompt']}{found['text']}\nstored {file}")


if __name__ == "__main__":
    main(*sys.argv[1:])
