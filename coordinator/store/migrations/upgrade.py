"""Bring a database to the newest schema, from a program."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Engine


def upgrade(engine: Engine) -> None:
    """Apply every missing revision in one transaction; does nothing on a current schema."""
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent))
    config.set_main_option("path_separator", "os")
    with engine.execution_options(fedward_begin="IMMEDIATE").begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
