"""The only room that knows SQL. Callers own the transaction; nothing in here commits by itself."""
