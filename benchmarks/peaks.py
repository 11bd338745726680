"""The most memory that something takes, in a process of its own.

This file is the program of that process, too: `peaks.py NAME` does one thing
and prints its peak in megabytes.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from int8 import Int8Linear
from rounds import THREADS
from torch import Tensor
from writers import draw_prompts, ours, theirs

from attnbook.attention import attend, weigh
from attnbook.fast import PackedLinear, pack
from attnbook.gpt import GPT, GPTConfig
from attnbook.masks import causal_mask


def attention_paths(T: int) -> dict[str, Callable[[], Tensor]]:
    """Causal attention of 12 heads of width 64 over T tokens, with the whole
    matrix of weights and by torch's fused kernel."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 12, T, 64) for _ in range(3))
    mask = causal_mask(T)
    return {
        "explicit": lambda: weigh(q, k, mask=mask) @ v,
        "fused": lambda: attend(q, k, v, causal=True),
    }


def memory(rounds: int) -> dict[str, int]:
    """The memory at the peak of a process that writes after 512 tokens.

    Args:
        rounds: is not used, since memory does not vary as time does.

    Returns:
        megabytes, by the name of the writer.
    """
    found = {
        name: extra_memory(name)
        for name in ("transformers", "plain", "packed", "int8")
    }
    print(f"memory: {found}", flush=True)
    return found


def extra_memory(name: str) -> int:
    """The megabytes that a process of its own takes at its peak.

    Args:
        name: what the process does, see `peak`.
    """
    command = [sys.executable, __file__, name]
    out = subprocess.run(
        command, check=True, capture_output=True, encoding="utf-8"
    )
    return int(out.stdout)


def peak(name: str) -> None:
    """Do one thing, and print the megabytes that it takes at its peak.

    Args:
        name: who writes, "transformers", "plain", "packed" or "int8", whose
            whole process is counted; or a way to compute attention and the
            number of tokens, "explicit:256", whose own memory is counted.
    """
    before = 0
    path, _, T = name.partition(":")
    if T:
        attend = attention_paths(int(T))[path]
        before = highest(since_now=True)
        with torch.inference_mode():
            attend()
    elif name == "transformers":
        from transformers import GPT2Config, GPT2LMHeadModel

        peer = GPT2LMHeadModel(
            GPT2Config(bos_token_id=0, eos_token_id=0, pad_token_id=0)
        )
        theirs(peer.eval(), draw_prompts(512))()
    else:
        model = GPT(GPTConfig()).eval()
        if name != "plain":
            model = pack(model, Int8Linear if name == "int8" else PackedLinear)
        ours(model, draw_prompts(512))()
    print((highest() - before) // 1024)


def highest(*, since_now: bool = False) -> int:
    """The kilobytes that this process has taken at most.

    With `since_now` the count begins anew first, so it is what the process
    takes now. It is Linux's own count, because what `resource` gives includes
    the parent's memory.

    Raises:
        OSError: this is no Linux.
    """
    status = Path("/proc/self/status")
    if since_now and status.exists():
        Path("/proc/self/clear_refs").write_text("5", "utf-8")
    if not status.exists():
        raise OSError(
            "the peak of a process is read from Linux's /proc; expected "
            f"{status}; got none: leave out the sections that need it"
        )
    (most,) = re.findall(r"VmHWM:\s+(\d+) kB", status.read_text("utf-8"))
    return int(most)


if __name__ == "__main__":
    torch.set_num_threads(THREADS)
    peak(sys.argv[1])
