"""How an attempt is shut in: what a profile needs, what this machine can give, and the walls themselves."""
