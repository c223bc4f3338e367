"""The scheduler of a pool: elected leader, its queue in memory, its nodes' sessions, and the books of what runs.

Hints in memory, truth in the database: everything here can be thrown away and read again, and when the database or the
leadership goes away that is what happens.
"""
