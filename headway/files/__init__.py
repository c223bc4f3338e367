"""Files in bulk: folders surveyed, packed and unpacked, and the signed addresses they travel by.

No database, no network: what a client, an agent and a server must do alike, done once.
"""
