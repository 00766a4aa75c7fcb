"""Between the agent's entry points and a person: agent.toml is written, errors become messages."""

import logging
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedward.client import agent
from fedward.client.errors import ClientError
from fedward.client.settings import AgentSettings, load_settings

from .errors import CliError, InvalidFile

TEMPLATE = """\
# The agent of site {site}. Paths count from this file's folder.
coordinator = "{coordinator}"
site = "{site}"
state = "{state}"            # key, journal and audit log of this agent: keep it safe
device = "auto"              # cuda, else mps, else cpu

[accept]
recipes = ["tabular"]        # training code that may run here: recipes by name,
apps = []                    # uploaded apps by digest

# [network]
# proxy = "http://proxy.example.org:3128"
# ca_file = "hospital-ca.pem"

# Your data. Plans name it; the path reaches the training code as node_config["data-path"].
# [datasets.my-data]
# path = "patients.csv"
# [datasets.my-data.node_config]
# partition-id = 0
"""


def join_federation(url: str, invite: str, *, config: Path, state: Path) -> dict[str, Any]:
    """Enrol with the settings in `config`, or write that file for a new agent.

    Returns:
        site, key_id, coordinator_key, config and state, for the person to compare.

    Raises:
        CliError: the file, the state folder or the coordinator says no.
    """
    with client_errors():
        known = load_settings(config) if config.exists() else None
        folder = known.state if known is not None else config.parent / state
        membership = agent.enrol(
            url, invite, folder, network=None if known is None else known.network
        )
    if known is None:
        _write_config(config, url=url, site=membership.site, state=state)
    elif known.site != membership.site:
        raise InvalidFile(
            f"{config}: site: got {known.site!r}, enrolled as {membership.site!r}: correct it"
        )
    return {
        "site": membership.site,
        "key_id": membership.key_id,
        "coordinator_key": membership.coordinator_key,
        "config": str(config),
        "state": str(folder),
    }


def run_agent(config: Path) -> None:
    """Run the agent until it is stopped; its log goes to standard error.

    Raises:
        CliError: it cannot start, or the coordinator ended the membership.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    with client_errors():
        settings = load_settings(config)
        logging.getLogger(__name__).info(
            "agent of site %s, coordinator %s", settings.site, settings.coordinator
        )
        agent.run(settings)


def agent_status(config: Path) -> dict[str, Any]:
    """Return what the state folder says, its audit log verified.

    Raises:
        CliError: the site is not enrolled, or its log does not verify.
    """
    with client_errors():
        settings: AgentSettings = load_settings(config)
        found = agent.status(settings.state)
    return {
        "site": found.membership.site,
        "coordinator": settings.coordinator,
        "key_id": found.membership.key_id,
        "public_key": found.public_key,
        "coordinator_key": found.membership.coordinator_key,
        "enrolled_at": found.membership.enrolled_at,
        "unfinished_tasks": found.unfinished,
        "audit_size": found.audit.size,
        "audit_root": found.audit.root,
    }


@contextmanager
def client_errors() -> Iterator[None]:
    """Turn the agent's errors into messages."""
    try:
        yield
    except (ClientError, ValueError) as error:
        raise CliError(str(error)) from error
    except (OSError, sqlite3.Error) as error:
        raise CliError(f"the state folder cannot be used: {error}") from error


def _write_config(config: Path, *, url: str, site: str, state: Path) -> None:
    text = TEMPLATE.format(coordinator=url, site=site, state=state)
    try:
        config.parent.mkdir(parents=True, exist_ok=True)
        with config.open("x", encoding="utf-8") as out:
            out.write(text)
    except OSError as error:
        raise InvalidFile(f"{config}: {error.strerror}; you are enrolled") from error
