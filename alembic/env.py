"""Runs migrations on the engine that the caller gives, or on EXPCTL_DATABASE_URL when alembic is called by hand."""

from alembic import context

from service.settings import Settings
from service.store.database import Database, migration
from service.store.tables import metadata

engine = context.config.attributes.get("engine") or Database(Settings().resolved_database_url).engine

# One transaction that begins as a writer's: of two processes that migrate at once, the second finds nothing left to do.
with migration(engine) as connection:
    context.configure(
        connection=connection, target_metadata=metadata, render_as_batch=connection.dialect.name == "sqlite", compare_type=True
    )
    with context.begin_transaction():
        context.run_migrations()
