"""From text to syntax nodes, a stage a file: split, tokens, table and lalr, expressions and items, explain."""
