"""What the site's administrator writes in agent.toml, and its defaults.

Relative paths count from the folder of agent.toml. Nothing here opens data: a data set that is
missing is noticed when a task asks for it.
"""

import tomllib
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError
from pydantic import model_validator as validator

from fedward.protocol.documents import Digest, Name, Scalar, Slug

from .errors import InvalidSettings


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Network(_Section):
    """How the coordinator is reached.

    `proxy` is an HTTP proxy's URL (else HTTPS_PROXY counts); `ca_file` holds certificates that
    are trusted beside the system's. `poll_s` is how long one request for work may wait,
    `timeout_s` how long the network may be silent otherwise.
    """

    proxy: str | None = None
    ca_file: Path | None = None
    poll_s: Annotated[float, Field(ge=0, le=50)] = 25.0
    timeout_s: Annotated[float, Field(gt=0, le=600)] = 30.0
    insecure_plain_http: bool = False
    """Allow http:// to another machine: signed, but readable by everyone on the way."""


class Accept(_Section):
    """Which training code may run: recipes by name, uploaded bundles by digest."""

    recipes: list[Slug] = ["tabular"]
    apps: list[Digest] = []


class Limits(_Section):
    """What a task may use."""

    task_s: Annotated[float, Field(gt=0, le=604_800)] = 86_400.0
    """Longest run of one message in the worker, seconds."""
    download_bytes: Annotated[int, Field(gt=0)] = 64 * 2**30
    """Largest model or bundle that is fetched."""
    cache_bytes: Annotated[int, Field(ge=0)] = 16 * 2**30
    """How much that was fetched stays on disk for the next round."""


class Dataset(_Section):
    """Where the data lies; the app finds both in `context.node_config`."""

    path: Path | None = None
    node_config: Annotated[dict[Name, Scalar], Field(max_length=256)] = {}


class AgentSettings(_Section):
    """All of agent.toml."""

    coordinator: str
    site: Slug
    state: Path
    device: Annotated[str, StringConstraints(pattern=r"^(auto|cpu|mps|cuda(:\d{1,3})?)$")] = "auto"
    network: Network = Network()
    accept: Accept = Accept()
    limits: Limits = Limits()
    datasets: dict[Name, Dataset] = {}

    @validator(mode="after")
    def _plain_http_only_on_loopback(self) -> Self:
        check_address(self.coordinator, network=self.network)
        return self


def check_address(url: str, *, network: Network) -> None:
    """Refuse a coordinator address that is no http(s) URL, or plain HTTP to another machine.

    Raises:
        ValueError: says what was got and what is expected.
    """
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query:
        raise ValueError(f"got {url!r}, expected an address like https://fl.example.org")
    if parts.scheme == "https" or is_loopback(parts.hostname) or network.insecure_plain_http:
        return
    raise ValueError(
        f"got plain http to {parts.hostname}, expected https "
        "(or network.insecure_plain_http = true on a private network)"
    )


def is_loopback(host: str) -> bool:
    """Say whether `host` names this machine."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def load_settings(path: Path) -> AgentSettings:
    """Read agent.toml.

    Raises:
        InvalidSettings: the file cannot be read, or a key is unknown, missing or wrong.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidSettings(f"{path}: {error}") from error
    try:
        settings = AgentSettings.model_validate(document)
    except ValidationError as error:
        raise InvalidSettings(_explain(path, error)) from error
    return _resolved(settings, folder=path.resolve().parent)


def _explain(path: Path, error: ValidationError) -> str:
    lines = []
    for item in error.errors(include_url=False):
        key = ".".join(str(part) for part in item["loc"]) or "(whole file)"
        lines.append(f"{path}: {key}: {item['msg']}, got {item['input']!r:.80}")
    return "\n".join(lines)


def _resolved(settings: AgentSettings, *, folder: Path) -> AgentSettings:
    network, datasets = settings.network, settings.datasets
    if network.ca_file is not None:
        network = network.model_copy(update={"ca_file": folder / network.ca_file.expanduser()})
    datasets = {
        name: dataset.model_copy(update={"path": folder / dataset.path.expanduser()})
        if dataset.path is not None
        else dataset
        for name, dataset in datasets.items()
    }
    state = folder / settings.state.expanduser()
    return settings.model_copy(update={"network": network, "datasets": datasets, "state": state})
