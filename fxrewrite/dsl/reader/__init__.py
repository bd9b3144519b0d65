"""From the text of a file to syntax nodes: cut into items, into tokens, run the table, build; say what is wrong where it stops."""
