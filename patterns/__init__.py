"""The shipped rule packs (`*.rw`) and their vocabulary (`vocab/*.rw`), found by name as package data."""
