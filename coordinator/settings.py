"""How one coordinator process is configured: its folder, its address, its limits.

Sources, the later one wins: defaults, a TOML file, the environment (`FEDWARD_<KEY>`), flags.
Whether the address may be served without TLS is decided here (`require_safe_address`); what is
done with the settings is left to `server.py`.
"""

import ipaddress
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from fedward.coordinator.errors import CoordinatorError

GIB = 1024**3
MIB = 1024**2


class InvalidSettings(CoordinatorError):
    """A setting is unknown, malformed or unsafe; the message names where it comes from."""

    def __init__(self, detail: str) -> None:
        super().__init__("invalid-settings", detail)


class Settings(BaseModel):
    """The configuration of `fedward serve`.

    `behind_proxy` says that a proxy in front ends TLS and sets `X-Forwarded-Proto`; only the
    addresses in `trusted_proxies` are believed. Sizes in bytes, times in seconds.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    data: Path
    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65_535)] = 8470
    tls_cert: Path | None = None
    tls_key: Path | None = None
    behind_proxy: bool = False
    trusted_proxies: tuple[str, ...] = ("127.0.0.1", "::1")
    database: str | None = None
    """SQLAlchemy URL; None: SQLite in the data folder."""
    max_app_bytes: Annotated[int, Field(gt=0)] = 64 * MIB
    max_model_bytes: Annotated[int, Field(gt=0)] = 32 * GIB
    max_json_bytes: Annotated[int, Field(gt=0)] = 2 * MIB
    poll_max_s: Annotated[float, Field(gt=0, le=120)] = 50.0
    poll_recheck_s: Annotated[float, Field(gt=0, le=120)] = 5.0
    """How often an idle poll looks at the database in case another process changed it."""
    sse_ping_s: Annotated[float, Field(gt=0, le=120)] = 15.0
    clock_tolerance_s: Annotated[float, Field(gt=0, le=3600)] = 300.0
    stop_timeout_s: Annotated[int, Field(ge=1, le=600)] = 2
    """How long open requests may take to end after SIGTERM."""

    @model_validator(mode="after")
    def _both_tls_files(self) -> Self:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("tls_cert and tls_key belong together; one of them is missing")
        return self

    @property
    def database_url(self) -> str:
        """The SQLAlchemy URL of the store."""
        return self.database or f"sqlite:///{self.data / 'fedward.sqlite'}"

    @property
    def key_path(self) -> Path:
        """Where the coordinator's Ed25519 key lies."""
        return self.data / "keys" / "coordinator.key"

    @property
    def scratch(self) -> Path:
        """Where bodies lie while they arrive; emptied at start."""
        return self.data / "scratch"

    @property
    def lock_path(self) -> Path:
        """The file whose lock says that a coordinator uses the folder."""
        return self.data / "coordinator.lock"


def load_settings(
    file: Path | None = None, *, env: Mapping[str, str], flags: Mapping[str, Any]
) -> Settings:
    """Merge the sources and check the result.

    Args:
        file: a TOML file with the names of `Settings` at the top level, or none.
        env: the process environment; only `FEDWARD_<KEY>` of known keys is read.
        flags: values from the command line; None means not given.

    Raises:
        InvalidSettings: names the source and key of each bad value.
    """
    values: dict[str, Any] = {}
    source: dict[str, str] = {}
    for origin, given in (
        (str(file), _read(file) if file else {}),
        ("environment", _from_environment(env)),
        ("command line", {k: v for k, v in flags.items() if v is not None}),
    ):
        for key, value in given.items():
            values[key], source[key] = value, origin
    try:
        settings = Settings.model_validate(values)
    except ValidationError as error:
        raise InvalidSettings(_describe(error, source)) from error
    require_safe_address(settings)
    return settings


def require_safe_address(settings: Settings) -> None:
    """Refuse plain HTTP on an address that other machines can reach.

    Raises:
        InvalidSettings: neither loopback, nor TLS, nor a proxy that ends TLS.
    """
    if is_loopback(settings.host) or settings.tls_cert is not None or settings.behind_proxy:
        return
    raise InvalidSettings(
        f"plain HTTP on {settings.host} is refused: tokens and models would cross the network "
        "unprotected; expected a loopback address, --tls-cert with --tls-key, or --behind-proxy"
    )


def is_loopback(host: str) -> bool:
    """Tell whether only this machine can reach the address; names other than localhost cannot."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidSettings(f"{file}: {error}") from error


def _from_environment(env: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key in Settings.model_fields:
        value = env.get(f"FEDWARD_{key.upper()}")
        if value:
            found[key] = value.split(",") if key == "trusted_proxies" else value
    return found


def _describe(error: ValidationError, source: Mapping[str, str]) -> str:
    lines = []
    for item in error.errors(include_url=False):
        key = ".".join(str(part) for part in item["loc"])
        origin = source.get(str(item["loc"][0]), "settings") if item["loc"] else "settings"
        unknown = item["type"] == "extra_forbidden"
        lines.append(f"{origin}: {key}: {'unknown setting' if unknown else item['msg']}")
    return "; ".join(lines)
