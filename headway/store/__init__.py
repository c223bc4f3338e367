"""The store: PostgreSQL is the only truth, and this package the only place that speaks SQL.

Every statement is named in `sql/*.sql` and has one typed method beside it. Every signature names its pool and tenant.
"""
