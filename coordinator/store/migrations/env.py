"""Alembic's entry: runs the revisions on the connection that `upgrade` hands over."""

from alembic import context

from fedward.coordinator.store.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    transactional_ddl=False,  # `upgrade` owns the transaction
)
context.run_migrations()
