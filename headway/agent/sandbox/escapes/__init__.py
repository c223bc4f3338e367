"""Attacks from inside a task: each is tried for real, and each must fail."""
