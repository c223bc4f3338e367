"""The gateway: authenticates, validates, gives ids, persists in groups, answers questions. Stateless but for caches."""
