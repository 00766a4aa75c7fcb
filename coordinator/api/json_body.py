"""Reads a JSON body as RFC 8259 and RFC 7493 have it: Unicode text without lone surrogates.

Python's parser lets them through, escaped or as bytes; nothing that is written later (canonical
JSON, SQL, an answer) could hold them.
"""

import json
import re
from typing import Any

from fastapi import Request

_ESCAPE = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"  # a pair
    r"|(?P<lone>\\u[dD][89a-fA-F][0-9a-fA-F]{2}|[\ud800-\udfff])"
    r"|\\.",
    re.DOTALL,
)
"""All escapes are consumed one by one, so that an escaped backslash begins none."""


class JsonRequest(Request):
    """A request whose JSON is checked."""

    async def json(self) -> Any:
        """Return the parsed body.

        Raises:
            JSONDecodeError: it is no JSON, or no Unicode text.
        """
        body = await self.body()
        # Parsed from bytes, lone surrogates that are written as bytes would pass.
        text = body.decode(json.detect_encoding(body), errors="surrogatepass")
        found = first_lone_surrogate(text)
        if found is not None:
            raise json.JSONDecodeError("a lone surrogate", text, found)
        return json.loads(text)


def first_lone_surrogate(text: str) -> int | None:
    """Return where in a JSON text the first surrogate without its other half stands."""
    for escape in _ESCAPE.finditer(text):
        if escape["lone"] is not None:
            return escape.start()
    return None
