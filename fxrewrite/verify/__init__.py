"""Proof of rules, forms and kernels: what they write against what their definitions admit."""
