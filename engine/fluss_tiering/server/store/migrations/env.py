"""Runs migrations on the connection, and inside the transaction, that `layout.migrate` gives."""

import logging

from alembic import context

logging.getLogger("alembic").setLevel(logging.WARNING)
context.configure(connection=context.config.attributes["connection"], transactional_ddl=True)
context.run_migrations()
