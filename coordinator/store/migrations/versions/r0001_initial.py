"""The first schema, with the triggers that keep the audit tables append-only.

SQLite fires no DELETE trigger for the row that INSERT OR REPLACE removes unless the connection
asks for it, so inserts are checked as well: a record's number is the last one's plus one, and a
node is new.
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_SQLITE_TRIGGERS = (
    *(
        f"CREATE TRIGGER {table}_no_{verb.lower()} BEFORE {verb} ON {table} "
        f"BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END"
        for table in ("audit_events", "audit_nodes")
        for verb in ("UPDATE", "DELETE")
    ),
    "CREATE TRIGGER audit_events_no_gap BEFORE INSERT ON audit_events "
    "WHEN NEW.seq IS NOT (SELECT coalesce(max(seq), 0) + 1 FROM audit_events) "
    "BEGIN SELECT RAISE(ABORT, 'audit_events: seq must be the last one plus 1'); END",
    "CREATE TRIGGER audit_nodes_no_replace BEFORE INSERT ON audit_nodes "
    "WHEN EXISTS (SELECT 1 FROM audit_nodes WHERE level = NEW.level AND idx = NEW.idx) "
    "BEGIN SELECT RAISE(ABORT, 'audit_nodes: a node is written once'); END",
)


def upgrade() -> None:
    """Create everything."""
    _create_studies()
    _create_catalogue()
    _create_sites()
    _create_runs()
    _create_attempts()
    _create_tasks()
    _create_access()
    _create_audit()
    if op.get_bind().dialect.name == "sqlite":
        for trigger in _SQLITE_TRIGGERS:
            op.execute(trigger)


def downgrade() -> None:
    """Refuse: dropping the audit log is no way back."""
    raise RuntimeError("the first schema holds the audit log and is not taken away")


def _create_studies() -> None:
    op.create_table(
        "studies",
        sa.Column("study", sa.String(length=64), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.Column("created", sa.Double(), nullable=False),
        sa.Column("expires", sa.Double(), nullable=False),
        sa.Column("closed", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("study", name="pk_studies"),
    )


def _create_catalogue() -> None:
    op.create_table(
        "apps",
        sa.Column("digest", sa.String(length=71), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("version", sa.String(length=200), nullable=False),
        sa.Column("clientapp", sa.String(length=200), nullable=False),
        sa.Column("config", sa.JSON(), nullable=False),
        sa.Column("files", sa.JSON(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("created", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("digest", name="pk_apps"),
    )
    op.create_table(
        "models",
        sa.Column("digest", sa.String(length=71), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("parameters", sa.BigInteger(), nullable=False),
        sa.Column("schema", sa.JSON(), nullable=False),
        sa.Column("created", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("digest", name="pk_models"),
    )
    op.create_table(
        "plans",
        sa.Column("digest", sa.String(length=71), nullable=False),
        sa.Column("study", sa.String(length=64), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.Column("created", sa.Double(), nullable=False),
        sa.Column("created_by", sa.String(length=200), nullable=False),
        sa.ForeignKeyConstraint(["study"], ["studies.study"], name="fk_plans_study"),
        sa.PrimaryKeyConstraint("digest", name="pk_plans"),
    )
    op.create_index("ix_plans_study", "plans", ["study"], unique=False)


def _create_sites() -> None:
    op.create_table(
        "sites",
        sa.Column("site", sa.String(length=64), nullable=False),
        sa.Column("organisation", sa.String(length=200), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("invited", sa.Double(), nullable=False),
        sa.Column("enrolled", sa.Double(), nullable=True),
        sa.Column("revoked", sa.Double(), nullable=True),
        sa.Column("last_seen", sa.Double(), nullable=True),
        sa.Column("clock_skew_s", sa.Double(), nullable=True),
        sa.Column("key_id", sa.String(length=64), nullable=True),
        sa.Column("public_key", sa.String(length=64), nullable=True),
        sa.Column("protocol", sa.String(length=200), nullable=True),
        sa.Column("agent_version", sa.String(length=200), nullable=True),
        sa.Column("library_versions", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("site", name="pk_sites"),
        sa.UniqueConstraint("key_id", name="uq_sites_key_id"),
    )
    op.create_table(
        "invites",
        sa.Column("invite_hash", sa.String(length=71), nullable=False),
        sa.Column("site", sa.String(length=64), nullable=False),
        sa.Column("created", sa.Double(), nullable=False),
        sa.Column("expires", sa.Double(), nullable=False),
        sa.Column("used", sa.Double(), nullable=True),
        sa.Column("used_by", sa.String(length=64), nullable=True),
        sa.ForeignKeyConstraint(["site"], ["sites.site"], name="fk_invites_site"),
        sa.PrimaryKeyConstraint("invite_hash", name="pk_invites"),
    )
    op.create_index("ix_invites_site", "invites", ["site"], unique=False)
    op.create_table(
        "nonces",
        sa.Column("key_id", sa.String(length=64), nullable=False),
        sa.Column("nonce", sa.String(length=200), nullable=False),
        sa.Column("created", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("key_id", "nonce", name="pk_nonces"),
    )
    op.create_index("ix_nonces_created", "nonces", ["created"], unique=False)


def _create_runs() -> None:
    op.create_table(
        "runs",
        sa.Column("run", sa.String(length=64), nullable=False),
        sa.Column("plan", sa.String(length=71), nullable=False),
        sa.Column("study", sa.String(length=64), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("round", sa.Integer(), nullable=False),
        sa.Column("state", sa.JSON(), nullable=False),
        sa.Column("model", sa.String(length=71), nullable=False),
        sa.Column("server_version", sa.Integer(), nullable=False),
        sa.Column("slots", sa.String(length=71), nullable=True),
        sa.Column("prepared", sa.JSON(), nullable=False),
        sa.Column("created", sa.Double(), nullable=False),
        sa.Column("started", sa.Double(), nullable=True),
        sa.Column("ended", sa.Double(), nullable=True),
        sa.Column("bytes_up", sa.BigInteger(), nullable=False),
        sa.Column("bytes_down", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["model"], ["models.digest"], name="fk_runs_model"),
        sa.ForeignKeyConstraint(["plan"], ["plans.digest"], name="fk_runs_plan"),
        sa.ForeignKeyConstraint(["study"], ["studies.study"], name="fk_runs_study"),
        sa.PrimaryKeyConstraint("run", name="pk_runs"),
    )
    op.create_index("ix_runs_plan", "runs", ["plan"], unique=False)
    op.create_index("ix_runs_status", "runs", ["status"], unique=False)
    op.create_index("ix_runs_study", "runs", ["study"], unique=False)
    op.create_table(
        "model_versions",
        sa.Column("run", sa.String(length=64), nullable=False),
        sa.Column("round", sa.Integer(), nullable=False),
        sa.Column("digest", sa.String(length=71), nullable=False),
        sa.Column("parent", sa.String(length=71), nullable=False),
        sa.Column("created", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["digest"], ["models.digest"], name="fk_model_versions_digest"),
        sa.ForeignKeyConstraint(["parent"], ["models.digest"], name="fk_model_versions_parent"),
        sa.ForeignKeyConstraint(["run"], ["runs.run"], name="fk_model_versions_run"),
        sa.PrimaryKeyConstraint("run", "round", name="pk_model_versions"),
    )
    op.create_index("ix_model_versions_digest", "model_versions", ["digest"], unique=False)


def _create_attempts() -> None:
    op.create_table(
        "attempts",
        sa.Column("run", sa.String(length=64), nullable=False),
        sa.Column("round", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("note", sa.String(length=200), nullable=True),
        sa.Column("opened", sa.Double(), nullable=False),
        sa.Column("aggregating", sa.Double(), nullable=True),
        sa.Column("closed", sa.Double(), nullable=True),
        sa.Column("weight", sa.Double(), nullable=True),
        sa.Column("metrics", sa.JSON(), nullable=False),
        sa.Column("model_before", sa.String(length=71), nullable=False),
        sa.Column("model_after", sa.String(length=71), nullable=True),
        sa.ForeignKeyConstraint(["run"], ["runs.run"], name="fk_attempts_run"),
        sa.PrimaryKeyConstraint("run", "round", "kind", "attempt", name="pk_attempts"),
    )


def _create_tasks() -> None:
    op.create_table(
        "tasks",
        sa.Column("task", sa.String(length=64), nullable=False),
        sa.Column("run", sa.String(length=64), nullable=False),
        sa.Column("round", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("site", sa.String(length=64), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("fence", sa.Integer(), nullable=False),
        sa.Column("reason", sa.String(length=200), nullable=True),
        sa.Column("offered", sa.Double(), nullable=False),
        sa.Column("leased", sa.Double(), nullable=True),
        sa.Column("finished", sa.Double(), nullable=True),
        sa.Column("result_digest", sa.String(length=71), nullable=True),
        sa.Column("receipt", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("detail", sa.Text(), nullable=True),
        sa.Column("num_examples", sa.Double(), nullable=True),
        sa.Column("weight", sa.Double(), nullable=True),
        sa.Column("metrics", sa.JSON(), nullable=False),
        sa.Column("duration_s", sa.Double(), nullable=True),
        sa.Column("update_digest", sa.String(length=71), nullable=True),
        sa.Column("update_bytes", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["run"], ["runs.run"], name="fk_tasks_run"),
        sa.PrimaryKeyConstraint("task", name="pk_tasks"),
        sa.UniqueConstraint(
            "run", "round", "kind", "attempt", "site", name="uq_tasks_run_round_kind_attempt_site"
        ),
    )
    op.create_index("ix_tasks_site_status", "tasks", ["site", "status"], unique=False)
    op.create_table(
        "jobs",
        sa.Column("run", sa.String(length=64), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("due", sa.Double(), nullable=False),
        sa.Column("leased_until", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(["run"], ["runs.run"], name="fk_jobs_run"),
        sa.PrimaryKeyConstraint("run", "kind", name="pk_jobs"),
    )
    op.create_index("ix_jobs_due", "jobs", ["due"], unique=False)


def _create_access() -> None:
    op.create_table(
        "tokens",
        sa.Column("token", sa.String(length=64), nullable=False),
        sa.Column("secret_hash", sa.String(length=71), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.Column("created", sa.Double(), nullable=False),
        sa.Column("expires", sa.Double(), nullable=False),
        sa.Column("revoked", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("token", name="pk_tokens"),
        sa.UniqueConstraint("secret_hash", name="uq_tokens_secret_hash"),
    )
    op.create_table(
        "idempotency",
        sa.Column("actor", sa.String(length=200), nullable=False),
        sa.Column("key", sa.String(length=200), nullable=False),
        sa.Column("request_digest", sa.String(length=71), nullable=False),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=True),
        sa.Column("created", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("actor", "key", name="pk_idempotency"),
    )
    op.create_index("ix_idempotency_created", "idempotency", ["created"], unique=False)


def _create_audit() -> None:
    op.create_table(
        "audit_events",
        sa.Column(
            "seq",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=False,
            nullable=False,
        ),
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("record", sa.LargeBinary(), nullable=False),
        sa.Column("leaf_hash", sa.LargeBinary(), nullable=False),
        sa.Column("ts", sa.Double(), nullable=False),
        sa.Column("action", sa.String(length=64), nullable=False),
        sa.Column("outcome", sa.String(length=16), nullable=False),
        sa.Column("actor", sa.String(length=200), nullable=False),
        sa.Column("study", sa.String(length=64), nullable=True),
        sa.Column("run", sa.String(length=64), nullable=True),
        sa.Column("round", sa.Integer(), nullable=True),
        sa.PrimaryKeyConstraint("seq", name="pk_audit_events"),
        sa.UniqueConstraint("id", name="uq_audit_events_id"),
    )
    op.create_index("ix_audit_events_action_seq", "audit_events", ["action", "seq"], unique=False)
    op.create_index("ix_audit_events_run_seq", "audit_events", ["run", "seq"], unique=False)
    op.create_table(
        "audit_nodes",
        sa.Column("level", sa.Integer(), nullable=False),
        sa.Column("idx", sa.BigInteger(), nullable=False),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("level", "idx", name="pk_audit_nodes"),
    )
