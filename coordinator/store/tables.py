"""The tables. docs/data-model.md explains them; `migrations/` creates and changes them.

Times are seconds since the epoch (UTC), sizes bytes, digests `sha256:<hex>`, JSON columns hold
what the module that writes them says. The audit tables are append-only by trigger.
"""

from sqlalchemy import (
    JSON,
    BigInteger,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
    UniqueConstraint,
)

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

_DIGEST = String(71)
_ID = String(64)
_NAME = String(200)

studies = Table(
    "studies",
    metadata,
    Column("study", _ID, primary_key=True),
    Column("document", JSON, nullable=False),
    Column("created", Double, nullable=False),
    Column("expires", Double, nullable=False),
    Column("closed", Double),
)

sites = Table(
    "sites",
    metadata,
    Column("site", _ID, primary_key=True),
    Column("organisation", _NAME, nullable=False),
    Column("status", String(16), nullable=False),
    Column("invited", Double, nullable=False),
    Column("enrolled", Double),
    Column("revoked", Double),
    Column("last_seen", Double),
    Column("clock_skew_s", Double),
    Column("key_id", _ID, unique=True),
    Column("public_key", String(64)),
    Column("protocol", _NAME),
    Column("agent_version", _NAME),
    Column("library_versions", JSON, nullable=False),
)

invites = Table(
    "invites",
    metadata,
    Column("invite_hash", _DIGEST, primary_key=True),
    Column("site", _ID, ForeignKey("sites.site"), nullable=False, index=True),
    Column("created", Double, nullable=False),
    Column("expires", Double, nullable=False),
    Column("used", Double),
    Column("used_by", String(64)),
)

apps = Table(
    "apps",
    metadata,
    Column("digest", _DIGEST, primary_key=True),
    Column("name", _NAME, nullable=False),
    Column("version", _NAME, nullable=False),
    Column("clientapp", _NAME, nullable=False),
    Column("config", JSON, nullable=False),
    Column("files", JSON, nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    Column("created", Double, nullable=False),
)

models = Table(
    "models",
    metadata,
    Column("digest", _DIGEST, primary_key=True),
    Column("size_bytes", BigInteger, nullable=False),
    Column("parameters", BigInteger, nullable=False),
    Column("schema", JSON, nullable=False),
    Column("created", Double, nullable=False),
)

plans = Table(
    "plans",
    metadata,
    Column("digest", _DIGEST, primary_key=True),
    Column("study", _ID, ForeignKey("studies.study"), nullable=False, index=True),
    Column("document", JSON, nullable=False),
    Column("created", Double, nullable=False),
    Column("created_by", _NAME, nullable=False),
)

runs = Table(
    "runs",
    metadata,
    Column("run", _ID, primary_key=True),
    Column("plan", _DIGEST, ForeignKey("plans.digest"), nullable=False, index=True),
    Column("study", _ID, ForeignKey("studies.study"), nullable=False, index=True),
    Column("status", String(16), nullable=False, index=True),
    Column("round", Integer, nullable=False),
    Column("state", JSON, nullable=False),
    Column("model", _DIGEST, ForeignKey("models.digest"), nullable=False),
    Column("server_version", Integer, nullable=False),
    Column("slots", _DIGEST),
    Column("prepared", JSON, nullable=False),
    Column("created", Double, nullable=False),
    Column("started", Double),
    Column("ended", Double),
    Column("bytes_up", BigInteger, nullable=False),
    Column("bytes_down", BigInteger, nullable=False),
)

model_versions = Table(
    "model_versions",
    metadata,
    Column("run", _ID, ForeignKey("runs.run"), nullable=False),
    Column("round", Integer, nullable=False),
    Column("digest", _DIGEST, ForeignKey("models.digest"), nullable=False, index=True),
    Column("parent", _DIGEST, ForeignKey("models.digest"), nullable=False),
    Column("created", Double, nullable=False),
    PrimaryKeyConstraint("run", "round"),
)

attempts = Table(
    "attempts",
    metadata,
    Column("run", _ID, ForeignKey("runs.run"), nullable=False),
    Column("round", Integer, nullable=False),
    Column("kind", String(16), nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("status", String(16), nullable=False),
    Column("reason", Text),
    Column("note", _NAME),
    Column("opened", Double, nullable=False),
    Column("aggregating", Double),
    Column("closed", Double),
    Column("weight", Double),
    Column("metrics", JSON, nullable=False),
    Column("model_before", _DIGEST, nullable=False),
    Column("model_after", _DIGEST),
    PrimaryKeyConstraint("run", "round", "kind", "attempt"),
)

tasks = Table(
    "tasks",
    metadata,
    Column("task", _ID, primary_key=True),
    Column("run", _ID, ForeignKey("runs.run"), nullable=False),
    Column("round", Integer, nullable=False),
    Column("kind", String(16), nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("site", _ID, nullable=False),
    Column("status", String(16), nullable=False),
    Column("fence", Integer, nullable=False),
    Column("reason", _NAME),
    Column("offered", Double, nullable=False),
    Column("leased", Double),
    Column("finished", Double),
    Column("result_digest", _DIGEST),
    Column("receipt", JSON(none_as_null=True)),
    Column("detail", Text),
    Column("num_examples", Double),
    Column("weight", Double),
    Column("metrics", JSON, nullable=False),
    Column("duration_s", Double),
    Column("update_digest", _DIGEST),
    Column("update_bytes", BigInteger, nullable=False),
    UniqueConstraint("run", "round", "kind", "attempt", "site"),
    Index(None, "site", "status"),
)

jobs = Table(
    "jobs",
    metadata,
    Column("run", _ID, ForeignKey("runs.run"), nullable=False),
    Column("kind", String(16), nullable=False),
    Column("due", Double, nullable=False, index=True),
    Column("leased_until", Double),
    PrimaryKeyConstraint("run", "kind"),
)

tokens = Table(
    "tokens",
    metadata,
    Column("token", _ID, primary_key=True),
    Column("secret_hash", _DIGEST, nullable=False, unique=True),
    Column("name", _NAME, nullable=False),
    Column("role", String(16), nullable=False),
    Column("created", Double, nullable=False),
    Column("expires", Double, nullable=False),
    Column("revoked", Double),
)

nonces = Table(
    "nonces",
    metadata,
    Column("key_id", _ID, nullable=False),
    Column("nonce", _NAME, nullable=False),
    Column("created", Double, nullable=False, index=True),
    PrimaryKeyConstraint("key_id", "nonce"),
)

idempotency = Table(
    "idempotency",
    metadata,
    Column("actor", _NAME, nullable=False),
    Column("key", _NAME, nullable=False),
    Column("request_digest", _DIGEST, nullable=False),
    Column("status", Integer, nullable=False),
    Column("body", LargeBinary),
    Column("created", Double, nullable=False, index=True),
    PrimaryKeyConstraint("actor", "key"),
)

audit_events = Table(
    "audit_events",
    metadata,
    Column(
        "seq", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=False
    ),
    Column("id", String(36), nullable=False, unique=True),
    Column("record", LargeBinary, nullable=False),
    Column("leaf_hash", LargeBinary, nullable=False),
    Column("ts", Double, nullable=False),
    Column("action", _ID, nullable=False),
    Column("outcome", String(16), nullable=False),
    Column("actor", _NAME, nullable=False),
    Column("study", _ID),
    Column("run", _ID),
    Column("round", Integer),
    Index(None, "run", "seq"),
    Index(None, "action", "seq"),
)

audit_nodes = Table(
    "audit_nodes",
    metadata,
    Column("level", Integer, nullable=False),
    Column("idx", BigInteger, nullable=False),
    Column("hash", LargeBinary, nullable=False),
    PrimaryKeyConstraint("level", "idx"),
)
