"""Write the parse table of `grammar.lark` anew, after an edit of it: `python tools/parse_table.py`."""

from __future__ import annotations

import json

from fxrewrite.dsl.reader.make_table import make_table
from fxrewrite.dsl.reader.table import STORED, grammar_text

if __name__ == "__main__":
    STORED.write_text(json.dumps(make_table(grammar_text()), separators=(",", ":")) + "\n", encoding="utf-8")
