"""Text from the machine as the program prints it: the same rules as `uncore-trace-recording/src/text.rs`."""

from __future__ import annotations

import re
import unicodedata

#: Invisible and bidirectional controls of Unicode 16 (UAX #9), line and paragraph separators; and half of a surrogate
#: pair, which JSON in UTF-8 cannot have.
_HIDDEN = re.compile("[\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\U000e0000-\U000e007f\ud800-\udfff]")
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def printable(text: str) -> str:
    """The text with controls, and what hides or turns text around, written as `\\n`, `\\u{1b}`, `\\u{202e}`."""
    return "".join(_SHORT.get(c) or f"\\u{{{ord(c):x}}}" if _is_hostile(c) else c for c in text)


def _is_hostile(c: str) -> bool:
    return unicodedata.category(c) == "Cc" or _HIDDEN.match(c) is not None
