"""The mutation score: what is verified is broken on purpose, and the checks must see it."""
