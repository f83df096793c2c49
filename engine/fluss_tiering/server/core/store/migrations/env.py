"""Runs migrations on the connection that `layout.migrate` provides, inside its transaction."""

import logging

from alembic import context

logging.getLogger("alembic").setLevel(logging.WARNING)
context.configure(connection=context.config.attributes["connection"], transactional_ddl=True)
context.run_migrations()
