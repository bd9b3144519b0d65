"""The shipped rule packs (`*.rw`) and the vocabulary they are written in (`vocab/*.rw`), found by name as package data."""
