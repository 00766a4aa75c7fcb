"""Alembic revisions and how to apply them."""
