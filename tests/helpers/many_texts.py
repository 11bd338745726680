"""Ten thousand texts for tokenizers: many scripts, emoji, spaces, code.

They are made, not fetched, and the same for the same seed. Characters that
came into Unicode after version 14 are left out: a library that was built
earlier does not know that they are letters.
"""

import random
import unicodedata

#: First and last character of some blocks of Unicode, by what they hold.
BLOCKS = {
    "Latin": (0x41, 0x24F),
    "Greek": (0x370, 0x3FF),
    "Cyrillic": (0x400, 0x52F),
    "Armenian": (0x531, 0x58A),
    "Hebrew": (0x591, 0x5F4),
    "Arabic": (0x600, 0x6FF),
    "Devanagari": (0x900, 0x97F),
    "Bengali": (0x980, 0x9FE),
    "Tamil": (0xB82, 0xBFA),
    "Thai": (0xE01, 0xE5B),
    "Georgian": (0x10A0, 0x10FF),
    "Ethiopic": (0x1200, 0x137C),
    "Khmer": (0x1780, 0x17F9),
    "kana": (0x3041, 0x30FF),
    "Hangul": (0xAC00, 0xD7A3),
    "Han": (0x4E00, 0x9FA5),
    "old Han": (0x20000, 0x2A6D6),
    "mathematics": (0x1D400, 0x1D7FF),
    "signs": (0x2010, 0x2BFF),
    "emoji": (0x1F300, 0x1FAF6),
    "flags": (0x1F1E6, 0x1F1FF),
    "Gothic": (0x10330, 0x1034A),
    "control": (0x00, 0x1F),
    "ASCII": (0x20, 0x7E),
}
SPACES = (
    " ", "  ", "    ", "\n", "\n\n", "\t", "\r\n", " \n ", "\u00a0",
    "\u2003", "\u2028", "\u3000", "\u0085",
)  # fmt: skip
ENGLISH = (
    "the boat left river bank don't I'm we've they'll it's he'd you're "
    "attention Weighted AVERAGE co-operate naïve 3.14 1,234,567 2024 ½ Ⅻ"
).split()
CODE = (
    "def f(x):\n    return x ** 2  # square\n",
    "for (int i = 0; i < n; ++i) { a[i] += b[i]; }\n",
    "SELECT * FROM t WHERE a <> 'it''s';",
    '{"key": [1, 2.5e-3, null], "text": "\\u00e9\\n"}',
    "<div class='a'>&nbsp;</div>",
    'git commit -m "don\'t" && echo $HOME/**/*.py',
)
SEQUENCES = (
    "👩‍👩‍👧‍👦",
    "🏳️‍🌈",
    "👍🏽",
    "é",
    "e\u0301",
    "ㅎㅏㄴ",
    "\u202eabc\u202c",
    "\ufeff",
    "<|im_end|>",
    "'s'S'",
    "''t",
)


def _known(character):
    return unicodedata.category(character) not in ("Cn", "Cs")


def texts(n, seed=0):
    """n texts of up to some hundred characters."""
    rng = random.Random(seed)
    found = ["", " ", "\n", "a", "  a  b  ", " 1 2  3   4", "a" * 300]
    while len(found) < n:
        found.append("".join(_part(rng) for _ in range(rng.randint(1, 12))))
    return found[:n]


def _part(rng):
    way = rng.random()
    if way < 0.25:
        return rng.choice(SPACES) * rng.randint(1, 3)
    if way < 0.5:
        return rng.choice(["", " "]) + rng.choice(ENGLISH)
    if way < 0.6:
        text = rng.choice(CODE)
        return text[: rng.randint(1, len(text))]
    if way < 0.7:
        return rng.choice(SEQUENCES)
    first, last = BLOCKS[rng.choice(list(BLOCKS))]
    letters = [chr(rng.randint(first, last)) for _ in range(rng.randint(1, 9))]
    return "".join(letter for letter in letters if _known(letter))
