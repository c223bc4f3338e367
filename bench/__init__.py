"""What Headway does in a second on this machine, beside what others do: `make bench`.

Nothing here is imported by Headway, and nothing here may flatter it: the same task body, the same kind of PostgreSQL,
the same two workers for everybody, and where two ways of counting differ, Headway gets the stricter one.
"""
